package node

// NameOf is what the interface and the control groups of the node in this directory are called.
func NameOf(root string) string { return nameOf(root) }
