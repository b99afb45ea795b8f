/**
 * Making and changing elements.
 *
 * Rules: whatever comes from the cluster (names, errors, tracebacks) is set as text, never parsed as HTML; no inline
 * style attributes, no inline handlers: the page runs under a strict Content-Security-Policy. An element is only
 * touched when what it shows has changed, so that a live page costs little.
 */

/** @typedef {string | number | Node | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 *
 * @param {string} tag
 * @param {Record<string, any>} [properties] attributes by name; `class`; `text`; `on`: handlers by event; `vars`: custom
 *     CSS properties by name, without the dashes
 * @param {...Child} children
 * @returns {any} the element; its exact kind is plain from the tag at the place of the call
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = String(value);
    else if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (name === "vars") for (const [key, setting] of Object.entries(value)) setVariable(made, key, String(setting));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

/**
 * @param {Element} parent
 * @param {Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Replace all children.
 *
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/**
 * Set a text, if it is another one.
 *
 * @param {Element} target
 * @param {string | number} text
 */
export function setText(target, text) {
  const wanted = String(text);
  if (target.textContent !== wanted) target.textContent = wanted;
}

/**
 * Set an attribute, or remove it, if that changes anything.
 *
 * @param {Element} target
 * @param {string} name
 * @param {string | number | boolean | null} value null or false: no such attribute
 */
export function setAttribute(target, name, value) {
  if (value === null || value === false) {
    if (target.hasAttribute(name)) target.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (target.getAttribute(name) !== wanted) target.setAttribute(name, wanted);
}

/**
 * Set a custom property, such as the length of a bar, if it is another one.
 *
 * @param {HTMLElement} target
 * @param {string} name without the dashes
 * @param {string} value
 */
export function setVariable(target, name, value) {
  const property = `--${name}`;
  if (target.style.getPropertyValue(property) !== value) target.style.setProperty(property, value);
}

/**
 * An icon from the paths of a 16 by 16 drawing, in the colour of the text.
 *
 * @param {string} paths
 * @returns {SVGElement}
 */
export function icon(paths) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", paths);
  drawing.append(path);
  return drawing;
}

/**
 * A button whose sign is short.
 *
 * @param {string} text
 * @param {string} label what it does
 * @param {() => void} click
 */
export function button(text, label, click) {
  return element("button", { type: "button", "aria-label": label, title: label, text, on: { click } });
}

/**
 * Call a function once things have been quiet for a while.
 *
 * @template {any[]} A
 * @param {(...values: A) => void} call
 * @param {number} milliseconds
 * @returns {((...values: A) => void) & {cancel: () => void}}
 */
export function debounced(call, milliseconds) {
  /** @type {number | undefined} */
  let timer;
  const wrapped = (/** @type {A} */ ...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
  return Object.assign(wrapped, { cancel: () => clearTimeout(timer) });
}

/**
 * Text with a button that copies it.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function copyable(text) {
  const button = element("button", { class: "quiet small", type: "button", text: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return element("div", { class: "copyable" }, element("pre", { text, tabindex: 0 }), button);
}
