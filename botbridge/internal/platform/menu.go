package platform

import "context"

// Menued is a platform that shows a menu of commands, which can differ by group.
type Menued interface {
	// Menu stands for what the menu says: another text whenever any of that changes.
	Menu() string
	// Hide leaves commands out of the menu of a group; nil shows the usual one again.
	Hide(ctx context.Context, in Chat, commands []string) error
}
