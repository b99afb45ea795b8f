/**
 * The runs that the task stream knows: which task ran where, from when to when; short ones taken together by the server.
 *
 *     event columns ──▶ RunStore ──▶ lanes: columns, sorted by end ──▶ painter, hit test, legend
 *
 * Rules: columns of plain numbers, no object for each run; bounded, the oldest go first. What does not
 * fit the contract (a column too short, no number) is left out, run by run.
 */

const MOST_RUNS = 250_000;
const MOST_UNTOLD = 1000;

const STATUS_WORDS = ["success", "failed", "cancelled", "lost"];

/** @param {number} status TaskStatus on the wire */
export const statusWord = (status) => STATUS_WORDS[status] || "ended";

/** @param {number} status */
export const isFailure = (status) => status === 1 || status === 3;

/**
 * @typedef {object} LaneRuns
 * @property {number[]} start unix seconds
 * @property {number[]} end
 * @property {number[]} functions
 * @property {number[]} status
 * @property {number[]} count
 * @property {number[]} client
 * @property {string[]} task
 * @property {Parts[]} parts
 *
 * @typedef {[number, number, number][] | null} Parts function, tasks and microseconds, where a run has several functions
 * @typedef {{lane: number, start: number, end: number | null, function: number, status: number | null, count: number, client: number, task: string, parts: Parts}} Run
 * @typedef {{store: RunStore, from: number, to: number}} Source a store, and for which time it is to be asked
 */

/** @returns {LaneRuns} */
const emptyLane = () => ({ start: [], end: [], functions: [], status: [], count: [], client: [], task: [], parts: [] });

export class RunStore {
  constructor() {
    /** @type {Map<number, LaneRuns>} */
    this.lanes = new Map();
    /** @type {Map<number, number>} seconds by function */
    this.busy = new Map();
    this.size = 0;
    this.failures = 0;
    /** @type {[number, number, number][]} from, to, and of how many workers the scheduler published one */
    this.untold = [];
  }

  clear() {
    this.lanes.clear();
    this.untold = [];
    this.busy.clear();
    this.size = 0;
    this.failures = 0;
  }

  /**
   * @param {any} body of an event
   * @returns {Run[]} what is new, for painting
   */
  append(body) {
    const columns = body.runs || {};
    const base = Number(body.base) || 0;
    const length = Array.isArray(columns.lane) ? columns.lane.length : 0;
    /** @type {Run[]} */
    const added = [];
    for (let index = 0; index < length; index++) {
      const start = base + Number(columns.start?.[index]) / 1e6;
      const end = base + Number(columns.end?.[index]) / 1e6;
      if (!Number.isFinite(start) || !Number.isFinite(end) || end < start) continue;
      const run = {
        lane: Number(columns.lane[index]),
        start,
        end,
        function: Number(columns.function?.[index]) || 0,
        status: Number(columns.status?.[index]) || 0,
        count: Number(columns.count?.[index]) || 1,
        client: Number(columns.client?.[index]) || 0,
        task: String(columns.task?.[index] ?? ""),
        parts: partsOf(columns.parts, index),
      };
      this.#insert(run);
      added.push(run);
    }
    for (const [from, to, oneOf] of Array.isArray(body.untold) ? body.untold : []) this.#addUntold(Number(from), Number(to), Number(oneOf));
    if (this.size > MOST_RUNS) this.#trim();
    return added;
  }

  /** @param {number} from @param {number} to @param {number} oneOf */
  #addUntold(from, to, oneOf) {
    const last = this.untold[this.untold.length - 1];
    if (last && last[2] === oneOf && from <= last[1] + 0.1) last[1] = Math.max(last[1], to);
    else if (to > from && oneOf > 1) this.untold.push([from, to, oneOf]);
    if (this.untold.length > MOST_UNTOLD) this.untold.shift();
  }

  /** @param {Run & {end: number, status: number}} run */
  #insert(run) {
    let lane = this.lanes.get(run.lane);
    if (!lane) {
      lane = emptyLane();
      this.lanes.set(run.lane, lane);
    }
    const place = lane.end.length === 0 || lane.end[lane.end.length - 1] <= run.end ? lane.end.length : firstEnding(lane, run.end);
    if (place === lane.end.length) {
      lane.start.push(run.start);
      lane.end.push(run.end);
      lane.functions.push(run.function);
      lane.status.push(run.status);
      lane.count.push(run.count);
      lane.client.push(run.client);
      lane.task.push(run.task);
      lane.parts.push(run.parts);
    } else {
      lane.start.splice(place, 0, run.start);
      lane.end.splice(place, 0, run.end);
      lane.functions.splice(place, 0, run.function);
      lane.status.splice(place, 0, run.status);
      lane.count.splice(place, 0, run.count);
      lane.client.splice(place, 0, run.client);
      lane.task.splice(place, 0, run.task);
      lane.parts.splice(place, 0, run.parts);
    }
    this.size += 1;
    if (isFailure(run.status)) this.failures += run.count;
    for (const [number, , microseconds] of run.parts || [[run.function, 0, (run.end - run.start) * 1e6]]) {
      this.busy.set(number, (this.busy.get(number) || 0) + microseconds / 1e6);
    }
  }

  // Drop the older half, by time.
  #trim() {
    const ends = [];
    for (const lane of this.lanes.values()) for (let index = 0; index < lane.end.length; index += 16) ends.push(lane.end[index]);
    ends.sort((one, other) => one - other);
    const cut = ends[ends.length >> 1] ?? 0;
    this.size = 0;
    for (const lane of this.lanes.values()) {
      const first = firstEnding(lane, cut);
      for (const column of Object.values(lane)) column.splice(0, first);
      this.size += lane.end.length;
    }
  }

  /**
   * Call with each run of a lane that lies between two times.
   *
   * @param {number} laneId
   * @param {number} from
   * @param {number} to
   * @param {(lane: LaneRuns, index: number) => void} call
   */
  between(laneId, from, to, call) {
    const lane = this.lanes.get(laneId);
    if (!lane) return;
    let later = 0;
    for (let index = firstEnding(lane, from); index < lane.end.length; index++) {
      if (lane.start[index] < to) call(lane, index);
      // Runs are sorted by their end; the starts of a lane's runs may be a little out of order.
      else if (++later > 32) break;
    }
  }

  /**
   * The run at a time, or the nearest within a tolerance.
   *
   * @param {number} laneId
   * @param {number} time
   * @param {number} tolerance seconds
   * @returns {Run | null}
   */
  at(laneId, time, tolerance) {
    /** @type {Run | null} */
    let found = null;
    let nearest = Infinity;
    this.between(laneId, time - tolerance, time + tolerance, (lane, index) => {
      const distance = Math.max(lane.start[index] - time, time - lane.end[index], 0);
      // Failures win over others as near: they are what is looked for.
      const weighed = isFailure(lane.status[index]) ? distance * 0.5 : distance;
      if (weighed > tolerance || weighed > nearest) return;
      nearest = weighed;
      found = { lane: laneId, start: lane.start[index], end: lane.end[index], function: lane.functions[index], status: lane.status[index], count: lane.count[index], client: lane.client[index], task: lane.task[index], parts: lane.parts[index] };
    });
    return found;
  }
}

/**
 * @param {any} parts by position
 * @param {number} index
 * @returns {Parts}
 */
function partsOf(parts, index) {
  const found = parts && Object.hasOwn(parts, index) ? parts[index] : null;
  if (!Array.isArray(found) || !found.every((part) => Array.isArray(part) && part.length === 3 && part.every(Number.isFinite))) return null;
  return found;
}

/**
 * @param {LaneRuns} lane
 * @param {number} time
 * @returns {number} index of the first run that ends then or later
 */
function firstEnding(lane, time) {
  let low = 0;
  let high = lane.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.end[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * What runs now.
 *
 * @param {any} body of an event
 * @returns {Run[]}
 */
export function readRunning(body) {
  const columns = body.running || {};
  const base = Number(body.base) || 0;
  const length = Array.isArray(columns.lane) ? columns.lane.length : 0;
  /** @type {Run[]} */
  const running = [];
  for (let index = 0; index < length; index++) {
    const start = base + Number(columns.start?.[index]) / 1e6;
    if (!Number.isFinite(start)) continue;
    running.push({ lane: Number(columns.lane[index]), start, end: null, function: Number(columns.function?.[index]) || 0, status: null, count: 1, client: Number(columns.client?.[index]) || 0, task: String(columns.task?.[index] ?? ""), parts: null });
  }
  return running;
}
