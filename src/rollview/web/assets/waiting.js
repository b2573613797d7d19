// Forms and details whose answer may take a while: they say so, and leave the rest of the page as it is.
const SLOW = 600;

function busy(place, text) {
  place.setAttribute("aria-busy", "true");
  const timer = setTimeout(() => {
    const said = document.createElement("p");
    said.className = "waits";
    said.textContent = text;
    place.replaceChildren(said);
  }, SLOW);
  return () => { clearTimeout(timer); place.removeAttribute("aria-busy"); };
}

const READING = "Reading. The first time this starts Spark, which takes some seconds.";

export function wait(form) {
  const answer = document.getElementById("answer");
  if (!answer || form.method !== "post") return;
  let running = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = true;
    const done = busy(answer, READING);
    try {
      const body = new URLSearchParams(new FormData(form, event.submitter));
      const page = new DOMParser().parseFromString(await (await fetch(form.action, { method: "POST", body })).text(), "text/html");
      done();
      const fresh = page.getElementById("answer") || page.getElementById("problem");
      answer.replaceChildren(...(fresh && fresh.id === "answer" ? fresh.childNodes : [fresh || "no answer"]));
    } catch {
      done();
      answer.textContent = "The server does not answer.";
    }
    running = false;
  });
  form.querySelector("textarea")?.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

// A part of a page that takes Spark: the page comes without it, and the part follows.
export async function read(place) {
  const done = busy(place, READING);
  try {
    const page = new DOMParser().parseFromString(await (await fetch(place.dataset.read)).text(), "text/html");
    const fresh = page.getElementById(place.id) || page.getElementById("problem");
    done();
    if (fresh) place.replaceChildren(...(fresh.id === place.id ? fresh.childNodes : [fresh]));
  } catch {
    done();
    place.textContent = "The server does not answer.";
  }
}

export function unfold(details) {
  const look = async () => {
    if (!details.open || details.dataset.read) return;
    details.dataset.read = "yes";
    const place = details.appendChild(document.createElement("div"));
    const done = busy(place, READING);
    try {
      const page = new DOMParser().parseFromString(await (await fetch(details.dataset.src)).text(), "text/html");
      done();
      const fresh = page.getElementById("effect") || page.getElementById("problem");
      place.replaceChildren(...(fresh ? (fresh.id === "effect" ? fresh.childNodes : [fresh]) : []));
    } catch {
      done();
      delete details.dataset.read;
      place.remove();
    }
  };
  details.addEventListener("toggle", look);
  // It may have been opened before this was loaded.
  look();
}
