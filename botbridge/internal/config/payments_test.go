package config

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prices need somebody who helps with payments, and terms; and whoever is named as that has
// something to sell.
func TestPaymentProblems(t *testing.T) {
	t.Setenv("BOT_TEST_TOKEN", "123456:ABC-DEF")
	const telegram, terms, contact = "telegram: {token: {env: BOT_TEST_TOKEN}}\n", "terms: {en: x}\n", "payments: {contact: '@help'}\n"
	for text, want := range map[string]string{
		telegram + contact + "commands: {a: {workflow: x}}":                              "payments: no command has a price in stars",
		telegram + terms + "commands: {a: {workflow: x, stars: 3}}":                      "payments: contact: say whom people write to",
		telegram + contact + "commands: {a: {workflow: x, stars: 3}}":                    "terms: there are none",
		telegram + terms + contact + "commands: {a: {workflow: x, stars: -3}}":           "command a: stars: -3 is below zero",
		telegram + terms + contact + "commands: {paysupport: {workflow: x, stars: 3}}":   "command paysupport: where something has a price",
		telegram + terms + contact + "commands: {a: {workflow: x, stars: 3, price: 99}}": "",
		telegram + "commands: {refund: {workflow: x}}":                                   "",
	} {
		c, err := Parse([]byte("hub: http://x\n" + text))
		require.NoError(t, err)
		got := errors.Join(c.Problems()...)
		if want == "" {
			require.NoError(t, got, text)
			continue
		}
		require.ErrorContains(t, got, want, text)
	}
	_, err := Parse([]byte("commands:\n  a:\n    workflow: x\n    stars: few"))
	require.ErrorContains(t, err, `line 4: "few" must be a whole number`)
}
