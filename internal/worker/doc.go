// Package worker keeps the programs that fetch their jobs over HTTP, because nobody can
// reach them or because they are no ComfyUI. To the hub each is an instance like any other:
// a facade for its ComfyUI lives in the hub's process, and what the hub posts there waits
// for the worker to fetch it. Dispatch, retries, files and messages know nothing of workers.
package worker
