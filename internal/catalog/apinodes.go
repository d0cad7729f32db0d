package catalog

import "github.com/comfyhub/comfyhub/internal/pyjson"

// WithSecrets returns the info of an instance that may have the API keys of prompts, or may
// not. It is the same one if that is known already.
func (i *Info) WithSecrets(may bool) *Info {
	if i == nil || i.secrets == may {
		return i
	}
	changed := *i
	changed.secrets = may
	return &changed
}

// APINodes returns the nodes of a graph that need its API key, in order: those whose class
// calls Comfy's paid services ("api_node" in its description) and that the outputs need.
//
// Only instances that may have API keys are believed, so that none of the others can turn
// the need on or off. Of a class that only the others have it is believed if they all say so:
// the key goes to none of them, and a prompt that needs it would fail there.
func APINodes(g *Graph, outputs []string, infos []*Info) (nodes []string) {
	needed, known := g.upstream(outputs), map[string]bool{}
	for id := range g.nodes().All() {
		if len(outputs) > 0 && !needed[id] {
			continue
		}
		name := g.classType(id)
		paid, met := known[name]
		if !met {
			paid = isPaid(name, infos)
			known[name] = paid
		}
		if paid {
			nodes = append(nodes, id)
		}
	}
	return nodes
}

// isPaid reports whether a class calls paid services, see [APINodes].
func isPaid(name string, infos []*Info) bool {
	trusted, others, all := false, false, true
	for _, info := range infos {
		c, has := info.class(name)
		switch {
		case !has:
		case info.secrets && c.api:
			return true
		case info.secrets:
			trusted = true
		default:
			others, all = true, all && c.api
		}
	}
	return !trusted && others && all
}

// HasSecret reports whether the secrets of a [Request] have any: programs send null and empty
// ones, too.
func HasSecret(secrets []byte) bool {
	v, err := pyjson.Parse(secrets)
	if err != nil {
		return false
	}
	o, _ := v.(*pyjson.Object)
	for _, value := range o.All() {
		if text, isText := value.(pyjson.String); isText && text != "" {
			return true
		}
	}
	return false
}

// WithheldKey is an objection to a node that needs the prompt's API key, where no instance
// that could run the prompt may have it.
func WithheldKey(node string) Objection {
	return Objection{
		Node: node, Kind: NotValid, Rule: "secrets_to",
		Reason: "this node needs the API key of the prompt, and no server that could run the prompt may have API keys. " +
			"The operator can name one with secrets_to in the hub's Caddyfile; without an API key the prompt runs, and this node fails",
	}
}
