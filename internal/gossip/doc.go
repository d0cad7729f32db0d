// Package gossip joins hubs and agents into one group that needs no address book:
// within seconds all members know who is there, and a member that restarts is found
// again.
//
// The group itself (memberlist) carries only what changes rarely: who a member is,
// in at most 512 bytes. What changes with every job travels as numbered reports,
// straight from each agent to each hub, because gossip would take half a second and
// lose some of them. Reports go by UDP at once, by TCP as well when an instance has
// become idle or busy, again every few seconds, and in the full state exchange of
// members from time to time. Receivers order them by their numbers.
//
// The key that encrypts the group proves only that a member belongs to it: every
// machine has it. Each agent also has its own [Identity], which signs its messages
// and makes its certificate, see [ServeTLS] and [DialTLS]. What memberlist itself
// says of a member, its address and whether it is alive, is not trusted where it
// could do harm.
package gossip
