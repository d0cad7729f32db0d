// Command agent runs beside one or more ComfyUI servers on a GPU machine and makes
// them instances of a hub's fleet.
//
// It listens to each server's own event socket and tells every hub at once when a
// server becomes idle or busy, or when somebody else uses it. It serves them all on
// one port, so that the servers themselves, which have no passwords, can stay on
// loopback. It holds no jobs and decides nothing: if it dies, runs continue, and
// when it returns the hubs resume them.
//
//	agent run --join hub.example.com:7946 --comfyui http://127.0.0.1:8188
//	agent simulate --count 3 --port 3188
package main
