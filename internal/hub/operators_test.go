package hub

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody is an operator who is not named: a login, or with "default" those who have none.
func TestOperators(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		at := b.instances[0].url()
		root, ada, namesake, stranger := b.login("root"), b.login("ada"), b.login("default"), b.script()
		for _, c := range []struct {
			operators []string
			sees      []*visitor
			doNotSee  []*visitor
		}{
			{nil, nil, []*visitor{root, ada, namesake, stranger}},
			{[]string{"root"}, []*visitor{root}, []*visitor{ada, namesake, stranger}},
			{[]string{"default"}, []*visitor{stranger}, []*visitor{root, ada, namesake}},
			{[]string{"login:default"}, []*visitor{namesake}, []*visitor{root, ada, stranger}},
		} {
			b.settings.Operators = c.operators
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			root.stats() // somebody logs in
			for _, v := range c.sees {
				require.Equal(t, at, v.instances()[0].URL, c.operators)
			}
			for _, v := range c.doNotSee {
				require.Empty(t, v.instances()[0].URL, c.operators)
			}
		}
	})
}
