// Package e2e tests the bot bridge as it is shipped: the bridge, a hub and
// simulated instances as processes of their own, before a fake of Telegram's Bot
// API, killed and cut off as machines and networks do it to programs.
package e2e
