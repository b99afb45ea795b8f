/**
 * Mouse and touch on the task stream: drag to pan, wheel or pinch to zoom, hover, click.
 *
 * Rules: one finger up and down scrolls the page, as everywhere; a press that hardly moved is a click. Positions are in css
 * pixels from the corner of the canvas.
 */

const CLICK_PIXELS = 4;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{pan: (pixels: number) => void, zoom: (factor: number, x: number) => void, hover: (x: number, y: number, clientX: number, clientY: number) => void, leave: () => void, click: (x: number, y: number) => void}} actions
 * @returns {() => void} ends it
 */
export function listenToPointers(canvas, actions) {
  const ending = new AbortController();
  const { signal } = ending;
  /** @type {Map<number, {x: number, y: number}>} */
  const pressed = new Map();
  let moved = 0;
  let spread = 0;

  /** @param {MouseEvent} event */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  const pinch = () => {
    const [one, other] = [...pressed.values()];
    return { width: Math.max(10, Math.abs(one.x - other.x)), middle: (one.x + other.x) / 2 };
  };

  canvas.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button !== 0) return;
      pressed.set(event.pointerId, place(event));
      canvas.setPointerCapture(event.pointerId);
      if (pressed.size === 1) moved = 0;
      if (pressed.size === 2) spread = pinch().width;
    },
    { signal },
  );
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const here = place(event);
      const before = pressed.get(event.pointerId);
      if (!before) {
        if (event.pointerType === "mouse") actions.hover(here.x, here.y, event.clientX, event.clientY);
        return;
      }
      pressed.set(event.pointerId, here);
      moved += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
      if (pressed.size === 1) {
        if (moved > CLICK_PIXELS) {
          actions.leave();
          actions.pan(here.x - before.x);
        }
      } else if (pressed.size === 2) {
        const { width, middle } = pinch();
        actions.zoom(spread / width, middle);
        spread = width;
      }
    },
    { signal },
  );
  canvas.addEventListener(
    "pointerup",
    (event) => {
      if (!pressed.delete(event.pointerId)) return;
      if (pressed.size === 0 && moved <= CLICK_PIXELS) {
        const { x, y } = place(event);
        actions.click(x, y);
      }
    },
    { signal },
  );
  canvas.addEventListener("pointercancel", (event) => pressed.delete(event.pointerId), { signal });
  canvas.addEventListener("pointerleave", () => actions.leave(), { signal });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const pixels = event.deltaMode === 1 ? 16 : 1;
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (isSideways) actions.pan(-(event.deltaX || event.deltaY) * pixels);
      else actions.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * pixels * 0.0022))), place(event).x);
    },
    { signal, passive: false },
  );
  return () => ending.abort();
}
