// On every page: follows the server, keeps "3 s ago" current, shows the activity.
import { follow } from "./live.js";
import { keepTimes } from "./times.js";
import { slide } from "./slider.js";
import { read, wait, unfold } from "./waiting.js";

keepTimes();
follow();
// Wide content starts at its newest end.
document.querySelectorAll("[data-end]").forEach((each) => { each.scrollLeft = each.scrollWidth; });
const slider = document.getElementById("slider");
if (slider) slide(slider);
document.querySelectorAll("form[data-waits]").forEach(wait);
document.querySelectorAll("[data-read]").forEach(read);
document.querySelectorAll("details[data-src]:not([data-empty])").forEach(unfold);
