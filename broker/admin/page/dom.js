// The page's only way to the document: `h` describes elements, `render` makes the document so.
// Rendering again changes what differs and nothing else, so scrolling, focus and what somebody
// is typing survive the updates every other second. Children are matched by `key`, else by place.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "line", "circle", "polyline", "title"]);

/**
 * Describe an element. `on...` are handlers, `style` is an object, `mounted` gets the element once
 * it is laid out for the first time; null and false stand for nothing.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(Infinity).filter(isSomething) };
}

function isSomething(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

/** Make the children of `container` what is described. */
export function render(container, ...nodes) {
  patch(container, nodes.flat(Infinity).filter(isSomething));
}

function patch(parent, wanted) {
  let at = parent.firstChild;
  for (const node of wanted) {
    const found = fits(at, node) ? at : keyed(at, node);
    if (found === null) {
      parent.insertBefore(create(node), at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else parent.insertBefore(found, at);
    update(found, node);
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function fits(element, node) {
  if (element === null) return false;
  if (typeof node !== "object") return element.nodeType === Node.TEXT_NODE;
  return element.described?.tag === node.tag && element.described.props.key === node.props.key;
}

function keyed(from, node) {
  if (typeof node !== "object" || node.props.key === undefined) return null;
  for (let other = from; other !== null; other = other.nextSibling) {
    if (fits(other, node)) return other;
  }
  return null;
}

function create(node) {
  if (typeof node !== "object") return document.createTextNode(String(node));
  const isSvg = SVG_TAGS.has(node.tag);
  const element = isSvg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  element.described = { tag: node.tag, props: { key: node.props.key } };
  update(element, node);
  if (node.props.mounted) requestAnimationFrame(() => node.props.mounted(element));
  return element;
}

function update(element, node) {
  if (typeof node !== "object") {
    if (element.nodeValue !== String(node)) element.nodeValue = String(node);
    return;
  }
  const before = element.described.props;
  for (const name of Object.keys({ ...before, ...node.props })) {
    if (before[name] !== node.props[name]) set(element, name, node.props[name]);
  }
  element.described = { tag: node.tag, props: node.props };
  patch(element, node.children);
}

function set(element, name, value) {
  if (name === "key" || name === "mounted") return;
  if (name.startsWith("on")) {
    element[name] = value ?? null;
  } else if (name === "style") {
    element.removeAttribute("style");
    for (const [property, text] of Object.entries(value ?? {})) {
      element.style.setProperty(property, text);
    }
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}
