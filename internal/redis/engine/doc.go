// Package engine is the Redis inside the hub's process: the data types, the
// commands and the Lua scripts that ComfyHub uses, with an append-only file
// that a Redis server can load.
//
// It runs the same scripts as a Redis server does, so the laws of the queue
// exist once. A command that it does not know is an error, never a guess; the
// tests run every command here and on a real server and compare.
//
// # Memory
//
// All keys are in memory, but large strings (bodies of prompts, entries of the
// history) are only in the file; memory holds their offsets. Keys and values are
// copy-on-write trees, so a snapshot of everything takes no time and the file can be
// rewritten while scripts run.
//
// # Durability
//
// The file has one MULTI block for each script; an incomplete block is ignored.
// Sync returns when everything written so far is on disk; callers that wait at the
// same time share one fsync.
package engine
