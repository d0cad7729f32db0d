"""Holds the module against the schema of the provider, for machines that cannot fetch the provider:
every resource and block has the arguments that it needs and no others, and what is read of a resource
exists. Terraform itself formats it, where it is installed. make docker-check runs it.

    check.py --renew   # takes the part of the schema that the module uses from @cdktf/provider-aws
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import hcl2

here = os.path.dirname(os.path.abspath(__file__))
schema_file = os.path.join(here, "schema.json")
source = "@cdktf/provider-aws@21.22.1"
meta = {"count", "for_each", "lifecycle", "provider", "depends_on", "provisioner", "connection", "__is_block__", "__comments__", "__start_line__", "__end_line__"}


def unquoted(s):
    return s[1:-1] if len(s) > 1 and s[0] == s[-1] == '"' else s


def blocks(kind):
    """The module's resources or data sources: type, name, body."""
    for path in sorted(glob.glob(os.path.join(here, "*.tf"))):
        with open(path, encoding="utf-8") as file:
            for entry in hcl2.load(file).get(kind, []):
                for type_, named in entry.items():
                    if type_ in meta:
                        continue
                    for name, body in named.items():
                        if name not in meta:
                            yield unquoted(type_), unquoted(name), body


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def interface(text, name):
    found = re.search(r"^export interface %s (?:extends \S+ )?\{\n(.*?)^\}" % re.escape(name), text, re.M | re.S)
    return found and found[1]


def arguments(text, name):
    """What a resource or a block may have: what it needs, what else, and its blocks."""
    needs, may, nested = [], [], {}
    for argument, optional, type_ in re.findall(r"/docs/\S+?#(\w+) [^}]*\}(?:(?!readonly).)*?readonly \w+(\??): ([^;]+)", interface(text, name), re.S):
        (may if optional else needs).append(argument)
        block = re.match(r"\w*", type_)[0]
        if block and interface(text, block):
            nested[argument] = arguments(text, block)
    return {"needs": needs, "may": may, "blocks": nested}


def renew():
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["npm", "pack", "--silent", source], cwd=work, check=True, stdout=subprocess.DEVNULL)
        schema = {}
        with tarfile.open(glob.glob(os.path.join(work, "*.tgz"))[0]) as package:
            for kind in ("resource", "data"):
                for type_ in sorted({t for t, _, _ in blocks(kind)}):
                    folder = ("data-" if kind == "data" else "") + type_.replace("_", "-").replace("aws-", "aws-" if kind == "data" else "", 1)
                    text = package.extractfile(f"package/lib/{folder}/index.d.ts").read().decode()
                    config = re.search(r"^export interface (\w+Config) extends", text, re.M)[1]
                    entry = arguments(text, config)
                    body = text.split("export declare class ")[-1]
                    entry["has"] = sorted({g for g in re.findall(r"get (\w+)\(\)", body) if not g.endswith("Input")})
                    schema[f"{kind}.{type_}"] = entry
    with open(schema_file, "w", encoding="utf-8") as file:
        lines = (json.dumps({type_: entry}, sort_keys=True)[1:-1] for type_, entry in sorted(schema.items()))
        file.write('{"source": "%s", "types": {\n%s\n}}\n' % (source, ",\n".join(lines)))


def check(at, body, schema):
    given = {k for k in body if k not in meta}
    for argument in given - set(schema["needs"]) - set(schema["may"]):
        yield f"{at} has no {argument}"
    for argument in set(schema["needs"]) - given:
        yield f"{at} needs {argument}"
    for block, inner in schema["blocks"].items():
        for one in body[block] if isinstance(body.get(block), list) else []:
            if isinstance(one, dict):
                yield from check(f"{at}.{block}", one, inner)


def main():
    if "--renew" in sys.argv:
        renew()
    with open(schema_file, encoding="utf-8") as file:
        schema = json.load(file)["types"]
    wrong, made = [], set()
    for kind in ("resource", "data"):
        for type_, name, body in blocks(kind):
            key = f"{kind}.{type_}"
            made.add(("data." if kind == "data" else "") + f"{type_}.{name}")
            if key not in schema:
                wrong.append(f"{type_} is not in schema.json: --renew")
                continue
            wrong += check(f"{type_}.{name}", body, schema[key])
    for path in sorted(glob.glob(os.path.join(here, "*.tf"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for data, type_, name, attribute in re.findall(r"\b(data\.)?(aws_\w+)\.(\w+)(?:\[\w+\])?(?:\.([a-z]\w*))?", text):
            if data + f"{type_}.{name}" not in made:
                wrong.append(f"{os.path.basename(path)}: there is no {data}{type_}.{name}")
            elif attribute and camel(attribute) not in schema[("data." if data else "resource.") + type_]["has"]:
                wrong.append(f"{os.path.basename(path)}: {type_} has no {attribute}")
    if shutil.which("terraform") and subprocess.run(["terraform", "fmt", "-check", "-diff", here]).returncode:
        wrong.append("terraform fmt formats it differently")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
