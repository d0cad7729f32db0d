// Package schedule decides which waiting job goes to which idle instance, learns how long graphs
// run and how much memory they take, and uses that to tell when a waiting job will start. It is
// pure: no lock around a decision, no network, no Redis and no clock. What it learns is stored
// under hashes of a graph's structure, which contain no text, seed or name of a user's file.
package schedule
