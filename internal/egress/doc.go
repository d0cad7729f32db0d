// Package egress says which hosts on the internet the hub may call, and calls them.
//
// What a user names is never called just so: the hub can reach machines that users
// cannot. The operator lists the hosts. A URL is checked against that list, again at
// each redirect, and the address is checked when the connection is made, after DNS has
// answered: a name that leads to a private address leads nowhere.
package egress
