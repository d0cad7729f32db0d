// Package fleet keeps the instances as a hub knows them. It does no networking:
// reports of agents come in as values, in whatever order the network delivers them,
// and snapshots go out.
//
// An agent's [Report] carries the time the agent started (Boot) and a counter
// (Seq). [Registry] drops reports that are older than what it has, decides which of
// two agents of one name is the real one, and adds what only the hub knows: which
// job it has sent where, what is draining, what it has found to be sick.
package fleet
