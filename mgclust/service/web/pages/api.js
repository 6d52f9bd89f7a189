// The page that describes the API, made from the description that the service gives to programs.

import { askJson, start } from "./session.js";
import { element, facts, show } from "./words.js";

const VERBS = ["get", "post", "put", "patch", "delete"];

function typeOf(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  return schema.type === "array" ? `list of ${typeOf(schema.items)}` : schema.type || "any";
}

function described(schema) {
  return [typeOf(schema), schema.description, schema.default === undefined ? "" : `default: ${JSON.stringify(schema.default)}`].filter(Boolean).join("; ");
}

// The names of a model, as pairs of a name and its description.
function fields(schema, models) {
  const model = schema?.$ref ? models[typeOf(schema)] : schema;
  return Object.entries(model?.properties || {}).map(([name, about]) => [name, described(about)]);
}

function part(title, pairs) {
  const list = element("dl", "", "facts");
  facts(list, pairs);
  const made = element("div");
  made.append(element("h2", title), list);
  return made;
}

function operation(verb, path, about, models) {
  const made = element("details", "", "card");
  const summary = element("summary");
  summary.append(element("code", `${verb.toUpperCase()} ${path}`));
  made.append(summary, ...(about.description || about.summary || "").split("\n\n").map((text) => element("p", text)));
  if (about.parameters?.length) made.append(part("Parameters", about.parameters.map((each) => [`${each.name} (${each.in})`, described({ ...each.schema, description: each.description })])));
  const body = about.requestBody?.content?.["application/json"]?.schema;
  if (body) made.append(part("Body", fields(body, models)));
  const codes = Object.keys(about.responses || {}).filter((code) => code < "300");
  const answer = about.responses?.[codes[0]]?.content?.["application/json"]?.schema;
  made.append(part("Answer", [["status", codes.join(", ")], ...(answer ? [["type", typeOf(answer)], ...fields(answer, models)] : [])]));
  return made;
}

start(async () => {
  try {
    const { paths, components } = await askJson("/openapi.json");
    const found = Object.entries(paths).flatMap(([path, verbs]) => VERBS.filter((verb) => verbs[verb]).map((verb) => operation(verb, path, verbs[verb], components.schemas)));
    document.getElementById("operations").replaceChildren(...found);
  } catch (error) {
    show("problem", error.message);
  }
});
