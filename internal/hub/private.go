package hub

import "github.com/comfyhub/comfyhub/internal/aiohttp"

// reserved are parts of ComfyUI's own interface. What lies below them and is no
// route of the hub's is one that the hub does not know yet, and none of a
// custom node's: it may tell of everybody's prompts and files.
var reserved = []string{
	"/internal", "/hub", "/prompt", "/queue", "/history", "/interrupt", "/userdata", "/v2/userdata", "/users", "/api/jobs", "/api/assets",
}

// isPrivate reports whether a path that is no route of the hub may not reach an
// instance whatever its operator says: it is a route for somebody who reads
// paths more loosely, or it is reserved.
func (h *Hub) isPrivate(path aiohttp.Path) bool {
	return path.Below(reserved...) || h.table.Resembles(path) || h.mounted.Resembles(path)
}
