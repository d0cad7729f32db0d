package a1111

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxNames bounds the names of models that are told.
const maxNames = 200_000

// abilities are what a server can run.
type abilities struct {
	// info is as the answer of GET /object_info.
	info []byte
	// titles maps each form of a checkpoint's name to the one that the server itself uses.
	titles map[string]string
	// options are the names of its settings, none if it does not tell them.
	options map[string]bool
}

// abilities reads what the server has.
func (c *client) abilities(ctx context.Context) (*abilities, error) {
	models, err := c.list(ctx, "sd-models")
	if err != nil {
		return nil, err
	}
	loras, err := c.list(ctx, "loras")
	var refused *statusError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound { // it is an extension, if one of the first
		err = nil
	}
	if err != nil {
		return nil, err
	}
	titles := map[string]string{}
	for _, m := range models {
		for _, form := range forms(m) {
			if _, taken := titles[form]; !taken && form != "" && len(titles) < maxNames {
				titles[form] = m.String("title")
			}
		}
	}
	names := make([]string, 0, len(titles))
	for form := range titles {
		names = append(names, form)
	}
	var ofLoras []string
	for _, l := range loras {
		for _, name := range []string{l.String("name"), l.String("alias")} {
			if name != "" && len(ofLoras) < maxNames {
				ofLoras = append(ofLoras, name)
			}
		}
	}
	options := map[string]bool{}
	if v, err := c.get(ctx, settingsPath, maxListing); err == nil {
		o, _ := v.(*pyjson.Object)
		for key := range o.All() {
			options[key] = true
		}
	}
	return &abilities{describe(sorted(names), sorted(ofLoras)), titles, options}, nil
}

func sorted(names []string) pyjson.Array {
	slices.Sort(names)
	return pyjson.Strings(slices.Compact(names))
}

// list asks for a list of objects.
func (c *client) list(ctx context.Context, path string) ([]*pyjson.Object, error) {
	v, err := c.get(ctx, path, maxListing)
	if err != nil {
		return nil, err
	}
	items, ok := v.(pyjson.Array)
	if !ok {
		return nil, &statusError{status: http.StatusOK, kind: "RuntimeError", message: apiPrefix + path + " is no list"}
	}
	var list []*pyjson.Object
	for _, item := range items {
		if o, ok := item.(*pyjson.Object); ok {
			list = append(list, o)
		}
	}
	return list, nil
}

// forms are the names by which A1111 takes a checkpoint, its title first: "model.safetensors
// [hash]", with and without the hash, the extension and the folder; the hashes alone.
func forms(model *pyjson.Object) []string {
	title := model.String("title")
	name, hash := title, ""
	if at := strings.LastIndex(title, " ["); at > 0 && strings.HasSuffix(title, "]") {
		name, hash = title[:at], title[at+2:len(title)-1]
	}
	stem := strings.TrimSuffix(name, path.Ext(name))
	slashed := strings.ReplaceAll(name, `\`, "/")
	all := []string{title, name, stem, path.Base(slashed), path.Base(strings.ReplaceAll(stem, `\`, "/")), model.String("model_name")}
	if hash != "" {
		all = append(all, stem+" ["+hash+"]", hash)
	}
	return append(all, model.String("hash"), model.String("sha256"))
}

// describe describes the classes of nodes, as GET /object_info does.
func describe(checkpoints, loras pyjson.Array) []byte {
	text := pyjson.Array{pyjson.String("STRING"), dict("multiline", pyjson.Bool(true))}
	link := func(kind string) pyjson.Array { return pyjson.Array{pyjson.String(kind)} }
	all := &pyjson.Object{}
	add := func(class string, required, optional *pyjson.Object, outputs ...string) {
		all.Set(class, dict(
			"input", dict("required", required, "optional", optional),
			"input_order", dict("required", pyjson.Strings(required.Keys()), "optional", pyjson.Strings(optional.Keys())),
			"output", pyjson.Strings(outputs), "output_is_list", falses(len(outputs)), "output_name", pyjson.Strings(outputs),
			"name", pyjson.String(class), "display_name", pyjson.String(class), "description", pyjson.String(""),
			"category", pyjson.String("a1111"), "output_node", pyjson.Bool(len(outputs) == 0)))
	}
	images := dict(InputImages, link(typeImage))
	sampling := dict(InputCheckpoint, link(typeCheckpoint), InputLoras, link(typeLora), InputImages, link(typeImage), InputOptions, text)
	for _, class := range []string{ClassTxt2Img, ClassImg2Img} {
		add(class, dict(InputPayload, text), sampling)
	}
	for _, class := range []string{ClassExtraSingle, ClassExtraBatch, ClassPNGInfo, ClassInterrogate} {
		add(class, dict(InputPayload, text), images)
	}
	add(ClassCheckpoint, dict(InputCheckpoint, pyjson.Array{checkpoints, &pyjson.Object{}}), &pyjson.Object{}, typeCheckpoint)
	add(ClassLora, dict(inputLora, pyjson.Array{loras, &pyjson.Object{}}), dict(inputNext, link(typeLora)), typeLora)
	add(ClassImage, dict(inputImage, pyjson.Array{pyjson.Array{}, dict("image_upload", pyjson.Bool(true))}), dict(inputNext, link(typeImage)), typeImage)
	return pyjson.Marshal(all)
}

func falses(n int) pyjson.Array {
	list := make(pyjson.Array, n)
	for i := range list {
		list[i] = pyjson.Bool(false)
	}
	return list
}
