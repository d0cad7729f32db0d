// Package e2e tests the bot bridge as it is shipped: the bridge, a hub and
// simulated instances run as separate processes, connected to a fake of Telegram's
// Bot API. The tests kill them and cut their connections, as machines and networks
// do.
package e2e
