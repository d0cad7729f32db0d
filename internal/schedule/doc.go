// Package schedule learns how long graphs run and tells from it when a waiting job
// will start. It is pure: no network, no Redis and no clock. What it learns is known
// by hashes of the structure of a graph; no text, seed or name of a user's file is in
// them.
package schedule
