package upstream

import (
	"bytes"
	"slices"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
	"github.com/comfyhub/comfyhub/internal/view"
)

// LeftPictures knows which instances hold pictures that nodes have left in their memory. Only the
// tenant whose job has named a picture may learn where it is.
type LeftPictures struct{ instances tenantlru.Map[string] }

// Note notes the pictures that an output of a tenant's job names.
func (l *LeftPictures) Note(tenant, instance string, output []byte) {
	if !bytes.Contains(output, []byte(`"http"`)) {
		return
	}
	v, err := pyjson.Parse(output)
	if err != nil {
		return
	}
	noted := 0
	eachObject(v, func(o *pyjson.Object) {
		if id := o.String("id"); id != "" && o.String("source") == "http" && noted < submit.MaxHeldIDs {
			noted++
			l.instances.Change(tenant, id, func(at *string) { *at = instance })
		}
	})
}

// at returns the instance that holds a tenant's picture, "" if unknown.
func (l *LeftPictures) at(tenant, id string) (instance string) {
	l.instances.Read(tenant, id, func(at *string) { instance = *at })
	return instance
}

// Holders returns the instances to ask for a picture that a node has left in their memory; clients
// are the client ids that the request may come from. Where people log in it is the one on which a
// job of the viewer's has named the picture, if any: ids can be guessed, and instances are shared.
func (n *Instances) Holders(v view.Viewer, clients []string, id string) []*comfyui.Client {
	if !n.Insight.SeesAll(v) {
		if client := n.Named.ByName(n.Left.at(v.Tenant, id)); client != nil {
			return []*comfyui.Client{client}
		}
		return nil
	}
	all := n.Dispatch.Instances.Clients()
	if first := n.ClientFor(v.Tenant, clients); first != nil {
		all = slices.Insert(slices.DeleteFunc(all, func(c *comfyui.Client) bool { return c == first }), 0, first)
	}
	return all
}

// eachObject calls f with every object in a value.
func eachObject(v pyjson.Value, f func(*pyjson.Object)) {
	switch v := v.(type) {
	case *pyjson.Object:
		f(v)
		for _, member := range v.All() {
			eachObject(member, f)
		}
	case pyjson.Array:
		for _, item := range v {
			eachObject(item, f)
		}
	}
}
