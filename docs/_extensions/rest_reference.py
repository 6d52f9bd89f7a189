"""The directive ``rest-reference``: the service's endpoints, from the description that the application itself makes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


def description() -> dict[str, Any]:
    """The application's OpenAPI document, from an empty data folder and without a server."""
    from mgclust.service.settings import Settings
    from mgclust.service.web.app import create_app

    with tempfile.TemporaryDirectory() as folder:
        return create_app(Settings(data=Path(folder))).openapi()


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if "enum" in schema:
        return ", ".join(json.dumps(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _content(content: dict[str, Any]) -> str:
    return "; ".join(f"`{kind}`: {_type(each.get('schema', {}))}" for kind, each in content.items())


def endpoints(api: dict[str, Any]) -> list[str]:
    """Markdown of all endpoints and of the schemas that they name."""
    lines: list[str] = []
    for path, operations in api["paths"].items():
        for verb, operation in operations.items():
            lines += [f"## {verb.upper()} {path}", "", operation.get("description", operation["summary"]), ""]
            if parameters := operation.get("parameters", []):
                lines += ["| parameter | in | type | meaning |", "|---|---|---|---|"]
                for each in parameters:
                    what = each.get("description", each["schema"].get("description", ""))
                    if "default" in each["schema"]:
                        what += f" Default: `{json.dumps(each['schema']['default'])}`."
                    needed = " (required)" if each.get("required") else ""
                    lines.append(
                        f"| `{each['name']}`{needed} | {each['in']} | {_cell(_type(each['schema']))} | {_cell(what)} |"
                    )
                lines.append("")
            if body := operation.get("requestBody"):
                lines += [f"Body: {_content(body['content'])}.", ""]
            for code, answer in operation["responses"].items():
                if code.startswith("2"):
                    content = _content(answer.get("content", {}))
                    lines.append(f"- {code}{f': {content}' if content else ''}")
            lines.append("")
    lines += ["## Schemas", ""]
    for name, schema in sorted(api.get("components", {}).get("schemas", {}).items()):
        lines += [f"### {name}", "", _cell(schema.get("description", "")), ""]
        if fields := schema.get("properties", {}):
            lines += ["| field | type | meaning |", "|---|---|---|"]
            for key, each in fields.items():
                lines.append(f"| `{key}` | {_cell(_type(each))} | {_cell(each.get('description', ''))} |")
            lines.append("")
    return lines


class RestReference(Directive):
    """All endpoints, a section each."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown in place."""
        parent = nodes.section()
        parent.document = self.state.document
        self.state.nested_parse(StringList(endpoints(description()), source="openapi"), self.content_offset, parent, 1)
        return parent.children


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("rest-reference", RestReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
