// Times that were said as "3 s ago" grow older while the page is open.
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 2 * MINUTE) return `${seconds.toFixed(0)} s`;
  if (seconds < 2 * HOUR) return `${(seconds / MINUTE).toFixed(0)} min`;
  if (seconds < 2 * DAY) return `${(seconds / HOUR).toFixed(1)} h`;
  return `${(seconds / DAY).toFixed(0)} d`;
}

function ago(moment) {
  const passed = Date.now() / 1000 - moment;
  return passed < 1 ? "now" : `${duration(passed)} ago`;
}

export function keepTimes() {
  setInterval(() => {
    for (const each of document.querySelectorAll("time[data-ago]")) {
      const text = ago(Number(each.dataset.ago));
      if (each.textContent !== text) each.textContent = text;
    }
  }, 1000);
}
