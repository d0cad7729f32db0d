// Package schedule decides which waiting job goes to which idle instance, learns how long
// graphs run and how much memory they take, and tells from it when a waiting job will start.
// It is pure: no lock around a decision, no network, no Redis and no clock. What it learns is
// known by hashes of the structure of a graph; no text, seed or name of a user's file is in
// them.
package schedule
