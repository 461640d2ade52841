// Polling: one loop for each document that the view shows, while the page is seen and not paused.
//
// A document that has not changed is answered with 304 and not drawn again. After a failure the loop goes on,
// slower, and the header says so.

const TIMEOUT_MS = 8000;
const listeners = new Set();
let running = [];
let paused = false;
let ahead = 0; // of our clock, the broker's

/** Calls `hear("live" | "paused" | "lost", why)` when that changes. */
export const onState = (hear) => listeners.add(hear);

const tell = (state, why = "") => listeners.forEach((hear) => hear(state, why));

/** The broker's present, in ms since 1970. */
export const now = () => Date.now() + ahead;

/** The answer of the API as an object. Throws an Error with the reason. */
export async function get(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS), ...options });
  if (answer.status === 304) return null;
  const document = await answer.json().catch(() => ({ error: `its answer was cut off (status ${answer.status})` }));
  if (!answer.ok || document.error) throw new Error(document.error || `status ${answer.status}`);
  const told = Number(answer.headers.get("Strandline-Now-Ms"));
  if (told) ahead = told - Date.now();
  return { document, tag: answer.headers.get("ETag") };
}

class Loop {
  constructor(path, everyMs, draw) {
    Object.assign(this, { path, everyMs, draw, tag: null, last: null, timer: null, turns: 0 });
    this.turn();
  }

  /** Asks now. What an earlier turn still waits for is dropped. */
  async turn() {
    clearTimeout(this.timer);
    const mine = ++this.turns;
    let wait = this.everyMs;
    if (!paused && !document.hidden) wait = await this.ask(() => mine === this.turns);
    if (mine === this.turns) this.timer = setTimeout(() => this.turn(), wait);
  }

  async ask(isCurrent) {
    const path = this.path();
    if (path !== this.last) Object.assign(this, { last: path, tag: null });
    try {
      const found = await get(path, this.tag ? { headers: { "If-None-Match": this.tag } } : {});
      if (!isCurrent() || paused) return this.everyMs;
      if (found) {
        this.tag = found.tag;
        this.draw(found.document);
      }
      tell("live");
      return this.everyMs;
    } catch (error) {
      if (isCurrent() && !paused) tell("lost", error.message);
      return Math.max(2 * this.everyMs, 2000);
    }
  }

  end() {
    this.turns += 1;
    clearTimeout(this.timer);
  }
}

/** Draws the document at `path()` again and again. Returns the loop: `turn()` asks at once. */
export function poll(path, everyMs, draw) {
  const loop = new Loop(path, everyMs, draw);
  running.push(loop);
  return loop;
}

/** Ends all loops: another view is shown. */
export function endAll() {
  running.forEach((loop) => loop.end());
  running = [];
}

export function pause(wanted) {
  paused = wanted;
  tell(paused ? "paused" : "live");
  if (!paused) running.forEach((loop) => loop.turn());
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) running.forEach((loop) => loop.turn());
});
