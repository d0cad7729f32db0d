// Package fleet keeps the instances as a hub knows them. There is no network in
// it: reports of agents come in as values, in whatever order the network left
// them, and snapshots go out.
//
// An agent's [Report] carries the moment the agent started (Boot) and a counter
// (Seq). [Registry] drops what is older than what it has, decides which of two
// agents of one name is the real one, and adds what only the hub knows: which
// job it has sent where, what is draining, what it has found sick.
package fleet
