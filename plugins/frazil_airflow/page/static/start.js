// The form that starts a run of a DAG. Airflow's REST API names its fields, and checks their values when the form is sent.
"use strict";
(() => {
  const form = document.querySelector("form.start");
  const home = document.body.dataset.home;
  const api = `${home}/api/v2/dags/${encodeURIComponent(form.dataset.dag)}`;
  const filled = JSON.parse(form.dataset.conf);
  const problem = form.querySelector("[data-problem]");
  const button = form.querySelector("button");
  const readers = {};

  const showProblem = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  const element = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const types = (schema) => [schema.type ?? "string"].flat();
  const isStructured = (schema) => types(schema).some((type) => type === "object" || type === "array");

  const dropdown = (id, schema, value) => {
    const select = element("select", { id });
    for (const option of schema.enum) {
      const label = option === null ? "" : (schema.values_display?.[option] ?? String(option));
      select.append(element("option", { value: JSON.stringify(option), textContent: label, selected: option === value }));
    }
    return [select, () => JSON.parse(select.value)];
  };
  const textInput = (id, schema, value) => {
    const isNumber = types(schema).some((type) => type === "integer" || type === "number");
    const input = element("input", { id, value: value ?? "", type: isNumber ? "number" : "text" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maxLength !== undefined) input.maxLength = schema.maxLength;
    const empty = types(schema).includes("null") ? null : "";
    return [input, () => (input.value === "" ? empty : isNumber ? Number(input.value) : input.value)];
  };
  const jsonArea = (id, schema, value) => {
    const area = element("textarea", { id, value: value === null ? "" : JSON.stringify(value, null, 2), spellcheck: false });
    return [area, () => (area.value.trim() === "" ? null : JSON.parse(area.value))];
  };
  const checkbox = (id, value) => {
    const box = element("input", { id, type: "checkbox", checked: Boolean(value) });
    return [box, () => box.checked];
  };

  const field = (name, param) => {
    const schema = param.schema ?? {};
    const value = Object.hasOwn(filled, name) ? filled[name] : param.value;
    const id = `field-${name}`;
    const kind = schema.enum ? dropdown : isStructured(schema) ? jsonArea : null;
    const [input, read] = kind ? kind(id, schema, value) : types(schema).includes("boolean") ? checkbox(id, value) : textInput(id, schema, value);
    readers[name] = read;
    const place = element("div", { className: "field" });
    place.append(element("label", { htmlFor: id, textContent: schema.title ?? name }), input);
    const help = param.description ?? schema.description;
    if (help) {
      place.append(element("p", { className: "sub", id: `${id}-help`, textContent: help }));
      input.setAttribute("aria-describedby", `${id}-help`);
    }
    return place;
  };

  const explained = async (response) => {
    const text = await response.text();
    try {
      const { detail } = JSON.parse(text);
      return typeof detail === "string" ? detail : JSON.stringify(detail, null, 2);
    } catch {
      return text;
    }
  };

  const start = async () => {
    const conf = Object.fromEntries(Object.entries(readers).map(([name, read]) => [name, read()]));
    const body = JSON.stringify({ logical_date: null, conf });
    const response = await fetch(`${api}/dagRuns`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!response.ok) throw new Error(`Airflow did not start it (${response.status}): ${await explained(response)}`);
    const run = await response.json();
    openInAirflow(`${home}/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`);
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    showProblem("");
    button.disabled = true;
    try {
      await start();
    } catch (error) {
      showProblem(error instanceof SyntaxError ? `A field is not JSON: ${error.message}` : error.message);
      button.disabled = false;
    }
  });

  const show = async () => {
    const response = await fetch(`${api}/details`);
    if (!response.ok) throw new Error(`The DAG can't be read (${response.status}): ${await explained(response)}`);
    const fields = Object.entries((await response.json()).params ?? {}).map(([name, param]) => field(name, param));
    form.querySelector("[data-fields]").replaceChildren(...fields);
    form.querySelector("[data-waiting]").remove();
    button.disabled = false;
  };
  show().catch((error) => showProblem(error.message));
})();
