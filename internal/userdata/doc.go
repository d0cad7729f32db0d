// Package userdata stores what ComfyUI's web interface saves for its users:
// settings and files, above all workflows. It is organized like a ComfyUI user
// folder, so that listings, moves and refusals are those of a real server. It is in
// the hub's storage, so that a workflow saved through one hub is available on all.
//
// The package knows nothing of HTTP or Redis. The storage contains:
//
//	user/TENANT/USER/f/PATH        a file
//	user/TENANT/USER/d/A+/B+/=     the folder A/B exists
//	user/TENANT/users/f/users.json the users of a tenant, if there are several
package userdata
