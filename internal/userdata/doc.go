// Package userdata keeps what ComfyUI's web interface saves for its users:
// settings and files, above all workflows. It has the shape of a ComfyUI
// user folder, so that listings, moves and refusals are those of a real
// server, and lies in the hub's storage, so that a workflow saved through one
// hub is there on all.
//
// The package knows neither HTTP nor Redis. What lies in the storage:
//
//	user/TENANT/USER/f/PATH        a file
//	user/TENANT/USER/d/A+/B+/=     the folder A/B exists
//	user/TENANT/users/f/users.json the users of a tenant, where there are several
package userdata
