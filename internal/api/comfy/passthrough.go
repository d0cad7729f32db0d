package comfy

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
)

// passthrough is the policy for a caller.
func (c *Room) passthrough(a api.Requester) config.PassthroughPolicy {
	return c.hub().Settings.PassthroughOf(a.Login)
}

// mayPass reports whether the policy lets a request through, and answers it
// otherwise.
func (c *Room) mayPass(w http.ResponseWriter, r *http.Request, a api.Requester, asked aiohttp.Path) bool {
	if isManager(r, asked) {
		return c.mayManage(w, r, a, asked)
	}
	needs := config.PassthroughOn
	switch {
	case isStatic(r, asked):
		return true
	case api.IsRead(r) && !upgrades(r):
		needs = config.PassthroughRead
	}
	policy := c.passthrough(a)
	if (policy == config.PassthroughOn || policy == needs) && (!a.ReadOnly || needs == config.PassthroughRead) {
		return true
	}
	api.WriteError(w, api.Error{
		Status: http.StatusForbidden, Kind: "passthrough_" + string(policy),
		Message: "This call is none of the hub's own, and passing it on to an instance is switched off",
		Details: "The hub's operator can allow it with `passthrough " + string(needs) + "`.",
	})
	return false
}

// managed are the paths under which ComfyUI-Manager installs, updates, removes
// and restarts, in all of its versions, by GET as well as by POST, and those of
// ComfyUI's own login at a model host. One visitor must not change the machines of all.
var managed = []string{
	"/manager", "/customnode", "/snapshot", "/externalmodel", "/comfyui_manager", "/alternatives", "/model/install",
	"/v2/manager", "/v2/customnode", "/v2/snapshot", "/v2/externalmodel", "/v2/comfyui_manager",
	"/hf-auth-login-start", "/hf-auth-logout",
}

// managedWrites are the paths under which any call but a reading one changes what
// is on a machine's disk: ComfyUI's models, assets and background tasks.
var managedWrites = []string{"/experiment/models", "/models", "/v2/models", "/embeddings", "/api/assets", "/api/tasks", "/api/downloads"}

// changing are the words in the path of a call, other than a reading one, that say
// that it changes a machine, in ComfyUI (/api/download-models) and in node packs alike.
var changing = []string{"download", "downloads", "install", "uninstall", "reboot"}

// downloads are routes of ComfyUI that put models on a machine's disk, and whose
// paths are those of listings that the hub answers itself.
var downloads = []string{
	"POST /experiment/models/download_missing", "POST /experiment/models/download_missing/cancel", "POST /assets/download",
}

// isManager reports whether a call may change a machine.
func isManager(r *http.Request, p aiohttp.Path) bool {
	return p.Below(managed...) || (!api.IsRead(r) || upgrades(r)) && (p.Below(managedWrites...) || p.Mentions(changing...))
}

// managerReads are the calls by which the web interface finds out what is
// installed, bare and under /v2. They change nothing without the parameter
// "value", which sets what they read.
var managerReads = []string{
	"/manager/version", "/manager/is_legacy_manager_ui", "/manager/queue/status", "/manager/policy/component", "/manager/share_option",
	"/customnode/installed", "/customnode/getmappings",
}

// mayManage decides on the calls that change machines, for which the operator has
// a word of its own: `manager on` opens them whatever passthrough is.
func (c *Room) mayManage(w http.ResponseWriter, r *http.Request, a api.Requester, asked aiohttp.Path) bool {
	if c.hub().Settings.Manager && a.MayManage() {
		c.Audit("request", append(api.Who(a), "action", r.Method+" ComfyUI-Manager")...)
		return true
	}
	name := strings.TrimPrefix(asked.Bare().String(), "/v2")
	if slices.Contains(managerReads, name) && api.IsRead(r) && !upgrades(r) && !api.QueryOf(r).Has("value") && c.passthrough(a) != config.PassthroughOff {
		return true
	}
	api.WriteError(w, api.Error{
		Status: http.StatusForbidden, Kind: "manager_off",
		Message: "Changing the code or the models of instances through the hub is switched off",
		Details: "The hub's operator can allow it with `manager on`; an API key needs the scope admin, too.",
	})
	return false
}

// upgrades reports whether a request asks for another protocol.
func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// pageFolders are the folders of the web interface's build and of extensions.
var pageFolders = []string{"extensions", "assets", "templates", "docs", "scripts", "fonts", "cursor"}

// pageFiles are the endings of the files that a page is made of.
var pageFiles = []string{
	".html", ".js", ".mjs", ".css", ".map", ".json", ".ico", ".svg", ".png", ".webp", ".woff", ".woff2", ".ttf",
}

// scriptFiles are the endings of those that it runs.
var scriptFiles = []string{".html", ".js", ".mjs", ".css", ".wasm"}

// isStatic reports whether a request reads a file of the web interface, of an
// extension, or of an extension's templates, where no handler of a custom node
// is expected.
func isStatic(r *http.Request, asked aiohttp.Path) bool {
	if !isPage(r, asked) {
		return false
	}
	name := strings.TrimPrefix(asked.Decoded(), "/")
	first, _, deep := strings.Cut(name, "/")
	return !deep || name == "api/" || slices.Contains(pageFolders, first) || strings.HasPrefix(name, templatesPath)
}

// isPart reports whether a request reads a part of the web interface that runs with its
// rights: the page, or a script of its build or of an extension. Everything else that
// an instance answers is content, as what its custom nodes make of users' files is.
func isPart(r *http.Request, asked aiohttp.Path) bool {
	return isStatic(r, asked) && !strings.HasPrefix(strings.TrimPrefix(asked.Decoded(), "/"), templatesPath)
}

// templatesPath is where packs keep their example workflows; it exists under
// /api only.
const templatesPath = "api/workflow_templates/"

// isPage reports whether a path is a part of the web interface rather than a
// call: pages, scripts and pictures. Their names carry hashes of one build, so
// they may never be spread over instances. A script counts wherever it is: a page could run it.
func isPage(r *http.Request, asked aiohttp.Path) bool {
	if !api.IsRead(r) || upgrades(r) {
		return false
	}
	name := strings.TrimPrefix(asked.Decoded(), "/")
	if name == "" || name == "api/" || strings.HasPrefix(name, templatesPath) {
		return true
	}
	first, _, deep := strings.Cut(name, "/")
	if deep && slices.Contains(pageFolders, first) {
		return true
	}
	ext := path.Ext(name)
	return first != "api" && slices.Contains(pageFiles, ext) || slices.Contains(scriptFiles, ext)
}
