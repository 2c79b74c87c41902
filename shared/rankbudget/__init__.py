"""One context budget: a prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped, and the report says why."""
