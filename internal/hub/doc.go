// Package hub puts the parts together: it is the core that every room of the API calls. Package api
// lets requests in and hands them to the rooms, of which api/ops answers for the hub itself and
// api/comfy for ComfyUI; package caddymodule turns it into a Caddy handler.
//
// The page docs/architecture.md follows a job from file to file.
//
// If the instance dies, the run is lost and the job goes back to its old place
// in the queue. If this process dies, the lease ends, and the next hub looks
// at the instance before it decides what was lost. Each step is written so
// that it can be repeated.
package hub
