/**
 * How much of each column of pixels a lane was busy, and with what.
 *
 *     runs of a lane ──cover──▶ share of each column (0 to 1), and its function ──pieces──▶ rectangles to fill
 *
 * Rules: no canvas here; a column's share is the time that runs lie in it, so all shares together are the lane's busy time,
 * however short its runs are. Where runs lie over each other (a task that waits, and one that it waits for), a column is
 * busy once, and shows the one that began last.
 */

const SOLID = 0.995; // as good as 1

export class Columns {
  /** @param {number} width how many columns */
  constructor(width) {
    this.share = new Float32Array(width);
    this.functions = new Float64Array(width);
    this.best = new Float32Array(width);
    this.begins = new Float64Array(width);
  }

  clear() {
    this.share.fill(0);
    this.best.fill(0);
  }

  /**
   * A run lies from x to another, in pixels.
   *
   * @param {number} from
   * @param {number} to
   * @param {number} number of its function
   */
  cover(from, to, number) {
    const last = Math.min(this.share.length, Math.ceil(to));
    for (let x = Math.max(0, Math.floor(from)); x < last; x++) {
      const part = Math.min(to, x + 1) - Math.max(from, x);
      if (part <= 0) continue;
      this.share[x] = Math.min(1, this.share[x] + part);
      if (part > this.best[x] || (part === this.best[x] && from > this.begins[x])) {
        this.best[x] = part;
        this.begins[x] = from;
        this.functions[x] = number;
      }
    }
  }

  /**
   * Columns that look alike, together. A column that is busy in part is so much lower, or beside a solid one so much paler:
   * either way, so much of it is filled as it was busy.
   *
   * @param {(x: number, width: number, share: number, isPale: boolean, number: number) => void} call
   */
  pieces(call) {
    const { share, functions } = this;
    let x = 0;
    while (x < share.length) {
      const level = share[x];
      let end = x + 1;
      if (level > 0) {
        const isSolid = level >= SOLID;
        while (end < share.length && functions[end] === functions[x] && (isSolid ? share[end] >= SOLID : share[end] === level)) end++;
        const isPale = !isSolid && end === x + 1 && (this.#isSolid(x - 1, functions[x]) || this.#isSolid(end, functions[x]));
        call(x, end - x, isSolid ? 1 : level, isPale, functions[x]);
      }
      x = end;
    }
  }

  /** @param {number} x @param {number} number */
  #isSolid(x, number) {
    return x >= 0 && x < this.share.length && this.share[x] >= SOLID && this.functions[x] === number;
  }
}
