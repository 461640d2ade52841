"""The controller decides who leads: pure plans and elections, and the service that carries them out."""
