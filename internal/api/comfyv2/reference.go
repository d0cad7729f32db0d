package comfyv2

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxAssets bounds the different assets that a workflow names: each is looked up.
const maxAssets = 256

// references replaces what a workflow says of assets with the names of their files.
type references struct {
	// find is the file of an id; ok is false for none.
	find func(id string) (value string, ok bool, err error)

	known    map[string]pyjson.Value
	replaced bool
	missing  []string
	err      error
}

// resolve returns the body of a request without references to assets.
func (o submits) resolve(ctx context.Context, a api.Requester, body *pyjson.Object) (*pyjson.Object, error) {
	refs := references{known: map[string]pyjson.Value{}, find: func(id string) (string, bool, error) { return o.inputValue(ctx, a, id) }}
	workflow := refs.walk(body.Object("workflow"))
	switch {
	case refs.err != nil:
		return nil, refs.err
	case len(refs.missing) > 0:
		return nil, &problem{
			status: http.StatusUnprocessableEntity, code: codeMissingAsset, message: "The workflow names assets that are not there, or not yours.",
			details: object("missing_ids", pyjson.Strings(refs.missing)),
		}
	case !refs.replaced:
		return body, nil // byte for byte
	}
	body.Set("workflow", workflow)
	text := pyjson.Marshal(body) // the graph is bytes from here on
	if limit := o.hub().Settings.MaxBody; int64(len(text)) >= limit {
		return nil, &problem{
			status: http.StatusRequestEntityTooLarge, code: codeOf(http.StatusRequestEntityTooLarge),
			message: "With the names of its assets' files, the workflow has " + strconv.Itoa(len(text)) + " bytes; it must have less than " + strconv.FormatInt(limit, 10) + ".",
		}
	}
	v, err := pyjson.Parse(text)
	if err != nil {
		return nil, err
	}
	changed, _ := v.(*pyjson.Object)
	return changed, nil
}

// walk returns a value with all references in it replaced, in place.
func (r *references) walk(v pyjson.Value) pyjson.Value {
	switch v := v.(type) {
	case *pyjson.Object:
		if v.String("__type") == "core/ASSET" {
			return r.replace(v)
		}
		for key, value := range v.All() {
			if changed := r.walk(value); container(value) {
				v.Set(key, changed)
			}
		}
	case pyjson.Array:
		for n, value := range v {
			v[n] = r.walk(value)
		}
	}
	return v
}

func container(v pyjson.Value) bool {
	_, isObject := v.(*pyjson.Object)
	return isObject
}

// replace is the file of a reference. One that names nothing is missing, never handed on.
func (r *references) replace(ref *pyjson.Object) pyjson.Value {
	info := ref.Object("info")
	name := cmp.Or(info.String("id"), info.String("hash"), "<no id>") // the id decides
	id, isHash := files.AssetID(name)                                 // one hash has many spellings
	if !isHash {
		id = name
	}
	if value, ok := r.known[id]; ok {
		return value
	}
	if r.err != nil || len(r.known) >= maxAssets {
		if r.err == nil {
			r.err = &problem{status: http.StatusUnprocessableEntity, code: codeWorkflow, message: "A workflow may name " + strconv.Itoa(maxAssets) + " assets."}
		}
		return ref
	}
	value, ok, err := r.find(id)
	if err != nil {
		r.err = err
		return ref
	}
	r.known[id], r.replaced = pyjson.String(value), true
	if !ok {
		r.missing = append(r.missing, name[:min(len(name), api.MaxName)])
	}
	return r.known[id]
}

// inputValue is how a node's input names the file of an asset or of an output.
func (o submits) inputValue(ctx context.Context, a api.Requester, id string) (string, bool, error) {
	ref := job.FileRef{}
	asset, err := o.hub().Uploads.FindAsset(ctx, a.Tenant, id)
	switch {
	case err == nil:
		ref = asset.Ref
	case !errors.Is(err, files.ErrNotFound):
		return "", false, err
	default:
		_, out, ok := readOutputID(id)
		if !ok {
			return "", false, nil
		}
		f, err := o.hub().Links.File(ctx, a.Tenant, out)
		if errors.Is(err, links.ErrNoFile) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		ref = f.Ref
	}
	value := ref.Value(false)
	if _, odd := job.SplitAnnotation(value); ref.Type != job.TypeInput || odd != "" {
		value = ref.Value(true)
	}
	return value, true, nil
}
