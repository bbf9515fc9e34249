// The run form of a DAG, filled in. Its fields are those that Airflow's REST API tells, which also checks what is sent.
"use strict";
(() => {
  const form = document.querySelector("form.start");
  const home = document.body.dataset.home;
  const api = `${home}/api/v2/dags/${encodeURIComponent(form.dataset.dag)}`;
  const filled = JSON.parse(form.dataset.conf);
  const problem = form.querySelector("[data-problem]");
  const button = form.querySelector("button");
  const readers = {};

  const say = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  const made = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const types = (schema) => [schema.type ?? "string"].flat();
  const isStructured = (schema) => types(schema).some((type) => type === "object" || type === "array");

  const choice = (id, schema, value) => {
    const select = made("select", { id });
    for (const of of schema.enum) {
      const label = of === null ? "" : (schema.values_display?.[of] ?? String(of));
      select.append(made("option", { value: JSON.stringify(of), textContent: label, selected: of === value }));
    }
    return [select, () => JSON.parse(select.value)];
  };
  const entry = (id, schema, value) => {
    const isNumber = types(schema).some((type) => type === "integer" || type === "number");
    const input = made("input", { id, value: value ?? "", type: isNumber ? "number" : "text" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maxLength !== undefined) input.maxLength = schema.maxLength;
    const empty = types(schema).includes("null") ? null : "";
    return [input, () => (input.value === "" ? empty : isNumber ? Number(input.value) : input.value)];
  };
  const structure = (id, schema, value) => {
    const area = made("textarea", { id, value: value === null ? "" : JSON.stringify(value, null, 2), spellcheck: false });
    return [area, () => (area.value.trim() === "" ? null : JSON.parse(area.value))];
  };
  const tick = (id, value) => {
    const box = made("input", { id, type: "checkbox", checked: Boolean(value) });
    return [box, () => box.checked];
  };

  const field = (name, param) => {
    const schema = param.schema ?? {};
    const value = Object.hasOwn(filled, name) ? filled[name] : param.value;
    const id = `field-${name}`;
    const kind = schema.enum ? choice : isStructured(schema) ? structure : null;
    const [input, read] = kind ? kind(id, schema, value) : types(schema).includes("boolean") ? tick(id, value) : entry(id, schema, value);
    readers[name] = read;
    const place = made("div", { className: "field" });
    place.append(made("label", { htmlFor: id, textContent: schema.title ?? name }), input);
    const help = param.description ?? schema.description;
    if (help) {
      place.append(made("p", { className: "sub", id: `${id}-help`, textContent: help }));
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
    say("");
    button.disabled = true;
    try {
      await start();
    } catch (error) {
      say(error instanceof SyntaxError ? `A field is not JSON: ${error.message}` : error.message);
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
  show().catch((error) => say(error.message));
})();
