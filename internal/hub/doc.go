// Package hub puts the parts together: it is the core that every room of the API
// calls. Package api lets requests in and hands them to the rooms, of which
// api/ops answers for the hub itself and api/comfy for ComfyUI; package
// caddymodule makes a Caddy handler of it.
//
// # The life of a job
//
//  1. A client posts a prompt (Submitter.Submit). Package catalog, which knows the
//     node classes of the fleet, validates it as ComfyUI would and says what
//     it requires; package files pins the inputs that it names; package queue
//     stores it. From the 200 on the job cannot be lost: it is in Redis.
//  2. Package dispatch hears of it, or of an instance that has become idle,
//     and pairs them (dispatch.Pick). The queue's Claim makes the pair a run:
//     one attempt, known by its fence, held under a lease.
//  3. The run puts the inputs on the instance, posts the prompt there, and
//     passes on what the instance's socket says: package comfyui rewrites ids,
//     package files gives outputs their names and copies them, package stream
//     delivers one client's messages in order, one prompt after the other, by
//     package peers also to a socket at another hub.
//  4. The instance ends. It is free at once; the run fetches the record,
//     waits for the files, writes the history entry (queue.Finish), and only
//     then lets the client see the end: status, then executing null.
//
// If the instance dies, the run is lost and the job goes back to its old place
// in the queue. If this process dies, the lease ends, and the next hub looks
// at the instance before it decides what was lost. Each step is written so
// that it can be repeated.
package hub
