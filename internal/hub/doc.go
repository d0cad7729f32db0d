// Package hub puts the parts together. Package api/mount gives each room of the API those that it
// needs: api/ops answers for the hub itself, api/comfy for ComfyUI. Package caddymodule makes a
// Caddy handler of it.
//
// The page docs/architecture.md follows a job from file to file.
//
// If the instance dies, the run is lost and the job goes back to its old place
// in the queue. If this process dies, the lease ends, and the next hub looks
// at the instance before it decides what was lost. Each step is written so
// that it can be repeated.
package hub
