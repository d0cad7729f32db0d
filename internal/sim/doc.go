// Package sim is a simulated ComfyUI server for tests and demonstrations.
//
// A [Server] implements ComfyUI's HTTP and WebSocket protocol closely enough that
// recorded traffic of real servers replays against it with equal results, as the
// replay test checks. It validates prompts against recorded node listings, queues
// them and runs them one at a time, keeps ComfyUI's node result cache, sends
// progress and previews and writes real pictures. No model is ever run: a sampler
// paints a picture that depends on the texts and the seed.
//
// The simulated version is a [Config] field. Each behaviour that changed between
// releases is a field of one feature set derived from it.
//
// What belongs to a ComfyUI process (queue, history, counter, sockets, caches,
// temporary files) is lost by [Server.Kill] and [Server.Restart]; what is on its
// disk (inputs, outputs, user data) stays.
package sim
