// Package callbacks tells programs of users, over HTTPS, what becomes of their jobs. The
// queue keeps the events and says which of them are due; this package sends them, signed
// as Standard Webhooks have it (https://www.standardwebhooks.com), and tells the queue
// what has become of each.
package callbacks
