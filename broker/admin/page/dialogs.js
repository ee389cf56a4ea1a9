// Questions to the reader that say what will happen, and short notices of what came of them.

import { Problem } from "./api.js";
import { h, render } from "./dom.js";

const NOTICE_MS = 6000;
const PREVIEW_DELAY_MS = 250;
let notices = [];
let current = null;

export function notice(text, kind = "good") {
  const made = { text, kind, key: `${Date.now()}-${Math.random()}` };
  notices = [...notices, made];
  showNotices();
  setTimeout(() => {
    notices = notices.filter((other) => other !== made);
    showNotices();
  }, NOTICE_MS);
}

function showNotices() {
  render(
    document.getElementById("notices"),
    notices.map(({ text, kind, key }) => h("p", { class: `notice ${kind}`, key }, text)),
  );
}

/**
 * Ask with a form and do something with the answers.
 *
 * `text` is a list of sentences. `fields`: {name, label, value, type, help, options, required, min,
 * placeholder, when, exactly}; with `when`, a field is there while that says so of the answers;
 * `exactly` is a text that must be typed before the button works. `act` gets {name: text} and
 * returns what to tell when it is done. `preview` gets the same whenever an answer changes and
 * returns, soon or at once, a description of what would happen. What goes wrong is shown in the
 * dialog, below the field that is to blame.
 */
export function ask(question) {
  dismiss();
  current = new Dialog(question);
  current.show();
}

/** Take back what was asked: the reader went elsewhere. */
export function dismiss() {
  current?.close();
}

class Dialog {
  constructor({ title, text = [], fields = [], button, danger = false, act, preview }) {
    Object.assign(this, { title, text, fields, button, danger, act, preview });
    this.host = document.getElementById("dialogs");
    this.failure = null;
    this.told = null;
    this.isBusy = false;
    this.isClosed = false;
    this.turn = 0;
    this.timer = 0;
  }

  show() {
    const close = () => this.close();
    const answers = this.answers();
    const asked = this.fields.filter((field) => field.when?.(answers) ?? true);
    const isExact = asked.every(
      (field) => field.exactly === undefined || answers[field.name] === field.exactly,
    );
    const faults = this.failure?.faults ?? [];
    render(
      this.host,
      h(
        "dialog",
        { "aria-labelledby": "dialog-title", onclose: close },
        h(
          "form",
          { onsubmit: (event) => this.submit(event), oninput: () => this.changed(PREVIEW_DELAY_MS) },
          h("h2", { id: "dialog-title" }, this.title),
          h("p", { class: "what" }, this.text.join(" ")),
          asked.map((field) => control(field, faultsOf(field, faults))),
          this.told && h("div", { class: "told", role: "status" }, this.told),
          this.failure && failed(this.failure, asked),
          h(
            "p",
            { class: "buttons" },
            h("button", { type: "button", onclick: close }, "Cancel"),
            h(
              "button",
              { class: this.danger ? "danger" : "main", disabled: this.isBusy || !isExact },
              this.isBusy ? "Working…" : this.button,
            ),
          ),
        ),
      ),
    );
    const dialog = this.host.querySelector("dialog");
    if (!dialog.open) {
      dialog.showModal();
      this.changed(0);
    }
  }

  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.turn += 1; // what is under way comes too late
    clearTimeout(this.timer);
    this.host.querySelector("dialog")?.close();
    render(this.host);
  }

  /** What stands in the form; before it is shown, and of hidden fields, what they begin with. */
  answers() {
    const begun = this.fields.map(({ name, value, options }) => [name, value ?? options?.[0][0] ?? ""]);
    const form = this.host.querySelector("form");
    return Object.fromEntries([...begun, ...(form === null ? [] : new FormData(form).entries())]);
  }

  changed(delay) {
    this.show();
    if (!this.preview) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.foretell(++this.turn), delay);
  }

  async foretell(turn) {
    const told = await Promise.resolve(this.preview(this.answers())).catch((error) => {
      if (error instanceof Problem) return h("span", { class: "fault" }, error.message);
      throw error;
    });
    if (turn !== this.turn) return;
    this.told = told;
    this.show();
  }

  async submit(event) {
    event.preventDefault();
    const answers = this.answers();
    this.isBusy = true;
    this.show();
    try {
      const done = await this.act(answers);
      this.close();
      if (done) notice(done);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.failure = error;
      this.isBusy = false;
      if (this.isClosed) notice(error.message, "bad");
      else this.show();
    }
  }
}

/** The faults that name a field, or a part of it. */
function faultsOf({ name }, faults) {
  return faults.filter(({ field }) => field === name || field.startsWith(`${name}.`));
}

function failed(failure, asked) {
  const isNamed = (fault) => asked.some((field) => faultsOf(field, [fault]).length > 0);
  const isAll = failure.faults.length > 0 && failure.faults.every(isNamed);
  return h(
    "p",
    { class: "fault", role: "alert" },
    h("b", {}, isAll ? "Nothing was done: look at the marked fields." : failure.message),
    " ",
    !isAll && failure.hint,
  );
}

function control(field, faults) {
  const fault = faults
    .map((one) => `${one.field === field.name ? "" : one.field.slice(field.name.length + 1)} ${one.message}`)
    .join("; ");
  const below = `about-${field.name}`;
  const props = {
    name: field.name,
    id: `field-${field.name}`,
    required: field.required ?? false,
    "aria-describedby": fault || field.help ? below : null,
    "aria-invalid": fault ? "true" : null,
  };
  return h(
    "div",
    { class: `field ${fault ? "wrong" : ""}`, key: field.name },
    h("label", { for: props.id }, field.label),
    input(field, props),
    fault
      ? h("small", { class: "fault", id: below }, fault)
      : field.help && h("small", { id: below }, field.help),
  );
}

function input(field, props) {
  if (field.options) {
    return h(
      "select",
      props,
      field.options.map(([value, label]) => h("option", { value, selected: value === field.value }, label)),
    );
  }
  if (field.type === "area")
    return h("textarea", { ...props, rows: field.rows ?? 4, spellcheck: "false" }, field.value ?? "");
  const { type = "text", value = "", min, placeholder } = field;
  return h("input", {
    ...props,
    type,
    value,
    min,
    placeholder,
    step: type === "datetime-local" ? 1 : null,
    autocomplete: "off",
  });
}
