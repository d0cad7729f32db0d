package gossip

import "testing"

func TestHubSaysThatItIsCutOff(t *testing.T) {
	t.Parallel()
	one := enter(t, RoleHub, "one", nil)
	two := enter(t, RoleHub, "two", joining(one.bind))
	defer leave(t, one)
	defer leave(t, two)
	says := func(cut bool) func() bool {
		return func() bool {
			others := two.Members()
			return len(others) == 1 && others[0].CutOff == cut
		}
	}
	eventually(t, "it says nothing", says(false))
	one.SetCutOff(true)
	eventually(t, "it is cut off", says(true))
	one.SetCutOff(false)
	eventually(t, "it is not", says(false))
}
