// The time slider: the table follows the drag, and marks the changes since the csn before.
export function slide(form) {
  const range = form.querySelector("#range"), exact = form.querySelector("#at"), rows = document.getElementById("rows");
  let shown = Number(range.value), wanted = shown, running = false, slow = 0;

  function address(csn, since) {
    const place = new URL(location.href);
    place.search = "";
    place.searchParams.set("at", csn);
    place.searchParams.set("read", 1);
    if (since !== undefined && since !== csn) place.searchParams.set("since", since);
    return place;
  }

  async function show() {
    if (running) return;
    running = true;
    while (wanted !== shown) {
      const csn = wanted;
      rows.setAttribute("aria-busy", "true");
      slow = setTimeout(() => note("Reading. The first time this may start Spark, which takes some seconds."), 700);
      try {
        const answer = await fetch(address(csn, shown));
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("rows") || page.getElementById("problem");
        const scroll = rows.querySelector(".scroll")?.scrollTop || 0;
        if (fresh) rows.replaceChildren(...(fresh.id === "rows" ? fresh.childNodes : [fresh]));
        const place = rows.querySelector(".scroll");
        if (place) place.scrollTop = scroll;
        history.replaceState(null, "", `?at=${csn}`);
      } catch {
        note("The server does not answer.");
      }
      clearTimeout(slow);
      shown = csn;
    }
    rows.removeAttribute("aria-busy");
    running = false;
  }

  function note(text) {
    const said = rows.querySelector(".waits") || rows.insertBefore(document.createElement("p"), rows.firstChild);
    said.className = "waits";
    said.textContent = text;
  }

  function go(csn) {
    wanted = Math.min(Math.max(csn, Number(range.min)), Number(range.max));
    range.value = exact.value = wanted;
    show();
  }

  // The view moves on while the page is open: the slider gets longer, its value stays.
  document.addEventListener("rollview:fresh", (event) => {
    const fresh = event.detail.getElementById("range"), ends = document.querySelector(".ends");
    if (!fresh || fresh.max === range.max && fresh.min === range.min) return;
    for (const each of [range, exact]) { each.min = fresh.min; each.max = fresh.max; }
    range.value = exact.value = wanted;
    range.disabled = fresh.disabled;
    ends.replaceChildren(...event.detail.querySelector(".ends").childNodes);
  });

  range.addEventListener("input", () => go(Number(range.value)));
  exact.addEventListener("change", () => { if (exact.value) go(Number(exact.value)); });
  form.addEventListener("submit", (event) => { event.preventDefault(); go(Number(exact.value)); });
}
