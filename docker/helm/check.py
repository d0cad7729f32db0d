"""Holds the chart against Helm's own rules and the published schemas, and says that it has the
same objects as docker/kubernetes. make docker-check runs it."""

import glob
import os
import sys

import kubernetes_validate
import yaml

try:
    import helm_python
except ImportError:
    sys.exit(print("there is no build of Helm for this machine: the chart is not checked"))

here = os.path.dirname(os.path.abspath(__file__))
plain = os.path.join(os.path.dirname(here), "kubernetes")
bare = {"secrets": {"create": False}}

# Each way in which somebody may use the chart.
uses = {
    "as it is": {},
    "like the manifests": bare,
    "with everything": {"ingress": {"enabled": True}, "monitoring": {"enabled": True}},
    "several hubs": {
        "hub": {"replicas": 3, "storage": "s3://bucket/files", "caddyfile": "import /etc/caddy/Caddyfile\n\nhttp://:8080 {\n\trespond 204\n}\n", "env": [{"name": "AWS_REGION", "value": "eu-west-1"}]},
        "redis": {"enabled": False},
        "imagePullSecrets": [{"name": "registry"}],
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    },
    "a hub alone": {"agent": {"enabled": False}, "hub": {"volume": {"storageClass": "fast"}}},
}
foreign = ("monitoring.coreos.com/v1",)  # no schemas of Kubernetes


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def objects(texts):
    """The objects of some files, by kind and name."""
    found = {}
    for text in texts:
        for o in yaml.safe_load_all(text):
            if o:
                found[o["kind"], o["metadata"]["name"]] = o
    return found


def rendered(chart, values):
    files = chart.render(values=values, name="comfyhub", namespace="comfyhub")
    return objects(text for name, text in files.items() if name.endswith(".yaml"))


def differences(path, one, two):
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(set(one) | set(two)):
            yield from differences(f"{path}.{key}", one.get(key), two.get(key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for n, (a, b) in enumerate(zip(one, two)):
            yield from differences(f"{path}[{n}]", a, b)
    elif one != two:
        yield f"{path}: {one!r} in the manifests, {two!r} in the chart"


def main():
    wrong = []
    for message in helm_python.lint(here, strict=True)["messages"]:
        if message["severity"] > 1:
            wrong.append(f"helm lint: {message['path']}: {message['error']}")
    with helm_python.Chart.load(here) as chart:
        for use, values in uses.items():
            for (kind, name), o in rendered(chart, values).items():
                if o["apiVersion"] not in foreign:
                    kubernetes_validate.validate(o, "1.29", strict=True)
        try:
            rendered(chart, {"hub": {"replicas": 2}})
            wrong.append("several hubs share a volume")
        except helm_python.HelmError:
            pass
        try:
            rendered(chart, {"hub": {"imgae": "x"}})
            wrong.append("a misspelt value is taken")
        except helm_python.HelmError:
            pass
        chart_has = rendered(chart, bare | {"ingress": {"enabled": True}, "monitoring": {"enabled": True}})
    files = [f for f in glob.glob(f"{plain}/**/*.yaml", recursive=True) if os.path.basename(f) != "kustomization.yaml"]
    manifests = objects(map(read, files))
    for key in sorted(set(manifests) | set(chart_has)):
        wrong += differences("/".join(key), manifests.get(key), chart_has.get(key))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
