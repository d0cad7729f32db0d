package caddymodule

import (
	"errors"
	"fmt"
)

// checkA1111 validates what is about A1111's API and may come from JSON.
func checkA1111(a *App) error {
	if a.A1111API != "" {
		if err := checkSwitch(a.A1111API); err != nil {
			return fmt.Errorf("a1111_api: %w", err)
		}
	}
	for _, name := range a.A1111Allow {
		if err := checkNotEmpty(name); err != nil {
			return fmt.Errorf("a1111_allow: %w", err)
		}
	}
	return nil
}

// a1111Fields are the values about A1111's servers that may have placeholders.
func a1111Fields(a *App) []*string {
	var fields []*string
	for i := range a.A1111 {
		fields = append(fields, &a.A1111[i])
	}
	for i := range a.A1111Allow {
		fields = append(fields, &a.A1111Allow[i])
	}
	return fields
}

// checkNotEmpty refuses an empty pattern: a variable that is not set must not look as if it said
// something.
func checkNotEmpty(pattern string) error {
	if pattern == "" {
		return errors.New("a name is empty")
	}
	return nil
}
