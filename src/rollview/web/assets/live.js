// The server says that something has changed; the page fetches itself again and takes over what is new.
// Only parts marked with data-live are replaced, so that what somebody types or drags stays as it is.
const LEAST_PAUSE = 900;
let due = false, running = false, last = 0;

export function say(state, text) {
  const place = document.getElementById("live");
  if (!place) return;
  place.dataset.state = state;
  const words = document.getElementById("live-text");
  if (words.textContent !== text) words.textContent = text;
}

function flashes(part) {
  const found = new Map();
  for (const each of part.querySelectorAll("[data-flash]")) found.set(each.dataset.flash, each.textContent);
  return found;
}

function keep(old) {
  // What somebody has opened or scrolled stays so.
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  const places = [...old.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const all = focused ? [...old.querySelectorAll("a, button, summary, [tabindex]")] : [];
  const number = focused ? all.indexOf(focused) : -1;
  return () => {
    old.querySelectorAll("details").forEach((each, place) => { if (open[place]) each.open = true; });
    old.querySelectorAll(".scroll").forEach((each, place) => {
      if (places[place]) [each.scrollLeft, each.scrollTop] = places[place];
    });
    if (number >= 0) old.querySelectorAll("a, button, summary, [tabindex]")[number]?.focus({ preventScroll: true });
  };
}

function replace(old, fresh) {
  if (old.innerHTML === fresh.innerHTML) return;
  const before = flashes(old), back = keep(old);
  old.replaceChildren(...fresh.childNodes);
  back();
  for (const each of old.querySelectorAll("[data-flash]")) {
    const was = before.get(each.dataset.flash);
    if (was !== undefined && was !== each.textContent) each.classList.add("flash");
  }
}

async function refresh() {
  if (running || document.hidden) { due = true; return; }
  running = true; due = false; last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(old.id);
        if (fresh) replace(old, fresh);
      }
      document.dispatchEvent(new CustomEvent("rollview:fresh", { detail: page }));
    }
  } catch { /* The stream says that the server is away. */ }
  running = false;
  if (due) soon();
}

function soon() {
  due = true;
  setTimeout(() => { if (due) refresh(); }, Math.max(0, last + LEAST_PAUSE - Date.now()));
}

export function follow() {
  const isLive = document.querySelector("[data-live]") !== null;
  if (!document.querySelector("header nav")) return;
  const stream = new EventSource("/live");
  let first = true;
  stream.addEventListener("open", () => { say("live", "live"); if (!first && isLive) soon(); });
  stream.addEventListener("changed", (event) => {
    const news = JSON.parse(event.data);
    say(news.activity ? "busy" : "live", news.activity || "live");
    // What the page shows is as new as the first message.
    if (!first && isLive) soon();
    first = false;
  });
  stream.addEventListener("error", () => say("lost", "not connected, trying again"));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && due) soon(); });
  // A stream that stays open would keep the browser from remembering the page as it was.
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}
