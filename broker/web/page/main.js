// The frame of the page: which view is shown (by the address after #), theme, keyboard, whether it is live.

import { decisions } from "./decisions.js";
import { say } from "./dom.js";
import { groups } from "./groups.js";
import { endAll, onState, pause } from "./live.js";
import { overview } from "./overview.js";
import { records } from "./records.js";
import { timeline } from "./timeline.js";

const VIEWS = { overview, timeline, decisions, groups, records };
const ORDER = Object.keys(VIEWS);
const byId = (id) => document.getElementById(id);

/** The part of an address; one that is badly escaped means itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `#/records/orders/0` is the view `records` with the parts `orders` and `0`. */
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const name = Object.hasOwn(VIEWS, parts[0]) ? parts[0] : "overview";
  return { name, parts: parts.slice(1) };
}

function show() {
  const { name, parts } = route();
  endAll();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `Strandline: ${name}`;
  const place = byId("view");
  place.replaceChildren();
  VIEWS[name](place, parts);
}

// -- theme

const THEMES = ["system", "light", "dark"];

function stored() {
  try {
    return localStorage.getItem("theme") || "system";
  } catch {
    return "system"; // storage may be off
  }
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  say(byId("theme"), { system: "Theme", light: "Light", dark: "Dark" }[theme]);
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // it holds until the page is left
  }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme || "system";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

// -- live or paused

let isPaused = false;

function togglePause() {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  say(byId("pause"), isPaused ? "Go on" : "Pause");
  pause(isPaused);
}

function heard(state, why) {
  byId("live").dataset.state = state;
  say(byId("live-text"), { live: "live", paused: "paused", lost: "no answer" }[state]);
  const notice = byId("notice");
  notice.hidden = state !== "lost";
  notice.dataset.kind = "bad";
  say(notice, `This broker does not answer: ${why}. What is shown is the last that is known.`);
}

// -- keyboard

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  (next.querySelector("a, button, summary") || next).focus();
  next.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  "/": () => document.querySelector("input[type=search], [data-search]")?.focus(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  p: togglePause,
  t: nextTheme,
  "?": () => byId("help").showModal(),
};

function pressed(event) {
  const field = event.target.closest("input, select, textarea");
  if (field && event.key === "Escape") field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const view = ORDER[Number(event.key) - 1];
  if (view) location.hash = view === "overview" ? "#/" : `#/${view}`;
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
}

setTheme(stored());
onState(heard);
byId("theme").addEventListener("click", nextTheme);
byId("pause").addEventListener("click", togglePause);
byId("keys").addEventListener("click", () => byId("help").showModal());
addEventListener("keydown", pressed);
addEventListener("hashchange", show);
show();
