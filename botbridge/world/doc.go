// Package world tests the bot bridge in a simulated world (package system): the real bridge
// and a real hub, with a fake of Telegram's Bot API, Discord and whatever else they call, on
// one network in memory and in virtual time.
package world
