// Package gossip joins hubs and agents into one group that needs no address
// book: who is there is known to everybody within seconds, and whoever
// restarts is found again.
//
// The group itself (memberlist) carries only what changes rarely: who a member
// is, in at most 512 bytes. What changes with every job travels as numbered
// reports straight from each agent to each hub, because gossip would take half
// a second and lose some: by UDP at once, by TCP as well when an instance has
// become idle or busy, again every few seconds, and in the full exchange that
// members make now and then. Receivers put them in order by their numbers.
//
// The key that encrypts the group says who belongs to it, and no more: every
// machine has it. Each agent has an [Identity] of its own besides, which signs
// what it says and makes its certificate, see [ServeTLS] and [DialTLS]. What
// memberlist itself says of a member, its address and whether it is alive, is
// believed of nobody whom it could harm.
package gossip
