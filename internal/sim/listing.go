package sim

import (
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// recordedJSON reads an embedded recording. Recordings are part of the program, so
// an error in one is a bug.
func recordedJSON(name string) *pyjson.Object {
	data, err := recorded.ReadFile("data/" + name)
	if err != nil {
		panic(err)
	}
	v, err := pyjson.Parse(data)
	if err != nil {
		panic(err)
	}
	return v.(*pyjson.Object)
}

// listings says what the instance can run and has: node classes, models and files.
type listings struct {
	feat  features
	cfg   Config
	cat   *catalogue
	files *folders
}

func (l *listings) getObjectInfo(w http.ResponseWriter, r *http.Request) {
	images := l.files.imageFiles()
	texts, out := l.cat.text(), []byte{'{'}
	for n, name := range l.cat.info.Keys() {
		if n > 0 {
			out = append(out, ", "...)
		}
		out = append(pyjson.AppendString(out, name), ": "...)
		entry := l.cat.overlay(name, images)
		if text := texts[entry]; text != nil {
			out = append(out, text...)
		} else {
			out = pyjson.Append(out, entry)
		}
	}
	answerBytes(w, http.StatusOK, typeJSON, append(out, '}'))
}

func (l *listings) getObjectInfoClass(w http.ResponseWriter, r *http.Request) {
	out := dict()
	if name := r.PathValue("class"); l.cat.info.Has(name) {
		out.Set(name, l.cat.overlay(name, l.files.imageFiles()))
	}
	answerJSON(w, http.StatusOK, out)
}

// modelFolders returns the model folders and their places on disk.
func (l *listings) modelFolders() *pyjson.Object {
	name := "folder_paths-0.3.64.json"
	if l.feat.newCatalogue {
		name = "folder_paths-0.33.0.json"
	}
	out := &pyjson.Object{}
	for folder, paths := range recordedJSON(name).All() {
		placed := pyjson.Array{}
		for _, v := range paths.(pyjson.Array) {
			placed = append(placed, pyjson.String(strings.Replace(python.Str(v), "<path>", l.files.base, 1)))
		}
		out.Set(folder, placed)
	}
	for _, folder := range sortedKeys(l.cfg.Models) {
		if !out.Has(folder) {
			out.Set(folder, list(filepath.Join(l.files.base, "models", folder)))
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (l *listings) getEmbeddings(w http.ResponseWriter, r *http.Request) {
	names := []string{}
	for _, name := range l.cat.modelFiles("embeddings") {
		names = append(names, strings.TrimSuffix(name, filepath.Ext(name)))
	}
	answerJSON(w, http.StatusOK, value(names))
}

func (l *listings) getModels(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, value(l.modelFolders().Keys()))
}

func (l *listings) getModelFolder(w http.ResponseWriter, r *http.Request) {
	folder := r.PathValue("folder")
	if !l.modelFolders().Has(folder) {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	answerJSON(w, http.StatusOK, pyjson.Strings(l.cat.modelFiles(folder)))
}

func (l *listings) getExperimentModels(w http.ResponseWriter, r *http.Request) {
	out := pyjson.Array{}
	for folder, paths := range l.modelFolders().All() {
		if folder == "configs" || folder == "custom_nodes" {
			continue
		}
		entry := dict("name", folder, "folders", paths)
		if l.feat.modelExtensions {
			entry.Set("extensions", extensionsOf(folder))
		}
		out = append(out, entry)
	}
	answerJSON(w, http.StatusOK, out)
}

func extensionsOf(folder string) pyjson.Value {
	switch folder {
	case "diffusers":
		return list("folder")
	case "classifiers":
		return list("")
	case "datasets":
		return list()
	}
	return pyjson.Strings(modelExtensions)
}

func (l *listings) getExperimentFolder(w http.ResponseWriter, r *http.Request) {
	folder := r.PathValue("folder")
	if !l.modelFolders().Has(folder) {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	out := pyjson.Array{}
	for _, name := range l.cat.modelFiles(folder) {
		// Only names are known, so the times are those of a fixed day.
		const day = 1.75e9
		out = append(out, dict("name", name, "pathIndex", 0, "modified", day, "created", day, "size", modelSize(folder, name)))
	}
	answerJSON(w, http.StatusOK, out)
}

// headerLimit is the longest safetensors header that is read.
const headerLimit = 1 << 20

// getViewMetadata returns the header of a safetensors file if the instance has a
// real one. Every failure is a 404.
func (l *listings) getViewMetadata(w http.ResponseWriter, r *http.Request) {
	name := query(r).Get("filename")
	full, inside := within(filepath.Join(l.files.base, "models", r.PathValue("folder")), name)
	data, err := os.ReadFile(full)
	if name == "" || !inside || err != nil || !strings.HasSuffix(name, ".safetensors") || len(data) < 8 {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	size := binary.LittleEndian.Uint64(data)
	if size > headerLimit || size > uint64(len(data)-8) {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	v, err := pyjson.Parse(data[8 : 8+size])
	header, ok := v.(*pyjson.Object)
	meta, has := header.Get("__metadata__")
	if err != nil || !ok || !has {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	answerJSON(w, http.StatusOK, meta)
}

func (p *process) getIndex(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	if p.feat.noStore {
		h.Set("Cache-Control", "no-store, must-revalidate")
	}
	h.Set("Pragma", "no-cache")
	h.Set("Expires", "0")
	p.srv.serveIndex(w, r)
}

// serveIndex sends the index page like a file.
func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	full := filepath.Join(s.cfg.Dir, "index.html")
	if have, err := os.ReadFile(full); err != nil || string(have) != s.cfg.IndexPage {
		if err := os.WriteFile(full, []byte(s.cfg.IndexPage), 0o644); err != nil {
			answerInternalError(w, r)
			return
		}
	}
	serveFile(w, r, full, "text/html")
}

func (l *listings) getFolderPaths(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, l.modelFolders())
}

// getFiles lists a folder, newest first.
func (l *listings) getFiles(w http.ResponseWriter, r *http.Request) {
	kind := r.PathValue("kind")
	root := l.files.root(kind)
	if root == "" {
		answerJSON(w, http.StatusBadRequest, dict("error", "Invalid directory type"))
		return
	}
	type file struct {
		name     string
		modified time.Time
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		answerInternalError(w, r)
		return
	}
	var files []file
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || l.feat.hidesDotFiles && strings.HasPrefix(e.Name(), ".") {
			continue
		}
		files = append(files, file{e.Name(), info.ModTime()})
	}
	slices.SortStableFunc(files, func(a, b file) int { return b.modified.Compare(a.modified) })
	out := pyjson.Array{}
	for _, f := range files {
		if l.feat.annotatedFiles {
			f.name += " [" + kind + "]"
		}
		out = append(out, pyjson.String(f.name))
	}
	answerJSON(w, http.StatusOK, out)
}

func (p *process) subscribeLogs(w http.ResponseWriter, r *http.Request) {
	if _, ok := p.readJSON(w, r); ok {
		answerEmpty(w, http.StatusOK)
	}
}

// replaceNodes rewrites classes that the server no longer has. A node without _meta
// makes the real server throw.
func replaceNodes(cat *catalogue, graph pyjson.Value) *exception {
	nodes, ok := graph.(*pyjson.Object)
	if !ok {
		return raise("AttributeError", "'%s' object has no attribute 'items'", python.TypeName(graph))
	}
	var table *pyjson.Object
	for id, v := range nodes.All() {
		node, ok := v.(*pyjson.Object)
		if !ok {
			return raise("AttributeError", "'%s' object has no attribute 'get'", python.TypeName(v))
		}
		kind, has := node.Get("class_type")
		switch kind.(type) {
		case pyjson.Array, *pyjson.Object:
			return raise("TypeError", "unhashable type: '%s'", python.TypeName(kind))
		}
		if inputs, ok := node.Get("inputs"); ok && inputs == (pyjson.Null{}) {
			return raise("AttributeError", "'NoneType' object has no attribute 'items'")
		}
		name, _ := kind.(pyjson.String)
		if _, known := cat.class(string(name)); !has || known {
			continue
		}
		if table == nil {
			table = recordedJSON("node_replacements.json")
		}
		rules := table.Array(string(name))
		if len(rules) == 0 {
			continue
		}
		if node.Object("_meta") == nil {
			return raise("KeyError", "'_meta'")
		}
		nodes.Set(id, replaced(node, rules[0].(*pyjson.Object)))
	}
	return nil
}

// replaced applies one rule to a node. Links from other nodes keep their slot.
func replaced(node, rule *pyjson.Object) *pyjson.Object {
	inputs := node.Object("inputs")
	mapping := rule.Array("input_mapping")
	if mapping != nil {
		inputs = &pyjson.Object{}
		for _, m := range mapping {
			m := m.(*pyjson.Object)
			if fixed, ok := m.Get("set_value"); ok {
				inputs.Set(m.String("new_id"), fixed)
			} else if old, ok := node.Object("inputs").Get(m.String("old_id")); ok {
				inputs.Set(m.String("new_id"), old)
			}
		}
	}
	out := &pyjson.Object{}
	for key, v := range node.All() {
		out.Set(key, v)
	}
	out.Set("class_type", pyjson.String(rule.String("new_node_id")))
	out.Set("inputs", inputs)
	return out
}

// assetRoutes lists the routes of assets, which answer 503 while those are off.
func assetRoutes() [][2]string {
	return [][2]string{
		{"GET", "/api/assets"},
		{"POST", "/api/assets"},
		{"GET", "/api/assets/{uuid}"},
		{"PUT", "/api/assets/{uuid}"},
		{"DELETE", "/api/assets/{uuid}"},
		{"GET", "/api/assets/{uuid}/content"},
		{"POST", "/api/assets/from-hash"},
		{"HEAD", "/api/assets/hash/{blake3}"},
		{"POST", "/api/assets/{uuid}/tags"},
		{"DELETE", "/api/assets/{uuid}/tags"},
		{"GET", "/api/tags"},
		{"GET", "/api/assets/tags/refine"},
		{"POST", "/api/assets/seed"},
		{"GET", "/api/assets/seed/status"},
		{"POST", "/api/assets/seed/cancel"},
		{"POST", "/api/assets/prune"},
	}
}

func (p *process) answerAssets(w http.ResponseWriter, r *http.Request) {
	if p.assetsOn() {
		p.noAssets(w, r)
		return
	}
	answerJSON(w, http.StatusServiceUnavailable, dict("error", dict("code", "SERVICE_DISABLED",
		"message", "Assets system is disabled. Start the server with --enable-assets to use this feature.", "details", dict())))
}
